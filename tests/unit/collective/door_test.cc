#include "collective/door.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <string>

namespace meshwright::collective {
namespace {

class DoorTest : public ::testing::Test {
 protected:
  std::string address() const { return fmt::format("127.0.0.1:{}", listener_->port()); }

  const DoorName name_{"c", 5, 77, "secret"};
  std::shared_ptr<Listener> listener_ = MakeListener("127.0.0.1", 0).value();
};

TEST_F(DoorTest, AConnectionIsHandedToWhoOpenedIt) {
  std::promise<UniqueFd> entered;
  const auto door =
      OpenDoor(listener_, name_, [&](UniqueFd fd) { entered.set_value(std::move(fd)); });
  ASSERT_TRUE(door.has_value()) << door.error();
  const auto mine = EnterDoor(address(), name_, 10'000);
  ASSERT_TRUE(mine.has_value()) << mine.error();
  const UniqueFd theirs = entered.get_future().get();
  ASSERT_TRUE(WriteFully(mine->get(), "hello", 5).ok());
  std::string got(5, ' ');
  ASSERT_TRUE(ReadFully(theirs.get(), got.data(), 5).ok());
  EXPECT_EQ(got, "hello");
  (void)::shutdown(theirs.get(), SHUT_RDWR);
  EXPECT_EQ(ReadFully(mine->get(), got.data(), 1).code(), StatusCode::kUnavailable);
}

TEST_F(DoorTest, WhoDoesNotKnowTheSecretIsRefused) {
  int entered = 0;
  const auto door = OpenDoor(listener_, name_, [&](UniqueFd) { ++entered; });
  DoorName wrong = name_;
  wrong.secret = "secreT";
  EXPECT_EQ(EnterDoor(address(), wrong, 10'000).error().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(entered, 0);
}

TEST_F(DoorTest, ThereIsOneOfEachNameWhileItIsOpen) {
  auto door = OpenDoor(listener_, name_, [](UniqueFd) {});
  ASSERT_TRUE(door.has_value());
  EXPECT_EQ(OpenDoor(listener_, name_, [](UniqueFd) {}).error().code(), StatusCode::kAlreadyExists);
  door->reset();
  EXPECT_TRUE(OpenDoor(listener_, name_, [](UniqueFd) {}).has_value());
}

TEST_F(DoorTest, WhereNobodyListensOrAnswersItSaysSo) {
  // Of a mesh that is over by the time: refused at once.
  DoorName newer = name_;
  newer.generation = 6;
  const auto door = OpenDoor(listener_, newer, [](UniqueFd) {});
  EXPECT_EQ(EnterDoor(address(), name_, 10'000).error().code(), StatusCode::kUnauthenticated);
  std::string nobody = address();
  listener_.reset();
  EXPECT_FALSE(EnterDoor("127.0.0.1:1", name_, 10'000).has_value());
  EXPECT_FALSE(EnterDoor("no address", name_, 10'000).has_value());
}

}  // namespace
}  // namespace meshwright::collective
