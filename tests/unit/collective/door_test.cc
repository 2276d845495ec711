#include "collective/door.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <string>
#include <thread>

#include "tests/unit/collective/test_authority.h"

namespace meshwright::collective {
namespace {

class DoorTest : public ::testing::TestWithParam<bool> {
 protected:
  DoorTest()
      : tls_(GetParam() ? MakeTls(authority_.WorkerFolder("w1")).value() : nullptr),
        listener_(MakeListener("127.0.0.1", 0, tls_).value()) {}
  std::string address() const { return fmt::format("127.0.0.1:{}", listener_->port()); }

  const DoorName name_{"c", 5, 77, "secret"};
  const TestAuthority authority_;
  const std::shared_ptr<Tls> tls_;
  std::shared_ptr<Listener> listener_;
};

TEST_P(DoorTest, AConnectionIsHandedToWhoOpenedIt) {
  const std::string large(3'000'001, 'x');
  std::promise<Connection> entered;
  const auto door =
      OpenDoor(listener_, name_, [&](Connection its) { entered.set_value(std::move(its)); });
  ASSERT_TRUE(door.has_value()) << door.error();
  std::string got(5, ' ');
  Connection theirs;
  std::thread server([&] {
    theirs = entered.get_future().get();
    EXPECT_TRUE(theirs.Read(got.data(), got.size()).ok());
    EXPECT_TRUE(theirs.Write(large.data(), large.size()).ok());
  });
  auto mine = EnterDoor(address(), name_, 10'000, tls_);
  EXPECT_TRUE(mine.has_value()) << mine.error();
  if (!mine.has_value()) return server.detach();
  ASSERT_TRUE(mine->Write("hello", 5).ok());
  std::string answer(large.size(), ' ');
  ASSERT_TRUE(mine->Read(answer.data(), answer.size()).ok());
  server.join();
  EXPECT_EQ(got, "hello");
  EXPECT_EQ(answer, large);
  (void)::shutdown(theirs.fd(), SHUT_RDWR);
  EXPECT_EQ(mine->Read(got.data(), 1).code(), StatusCode::kUnavailable);
}

TEST_P(DoorTest, WhoDoesNotKnowTheSecretIsRefused) {
  int entered = 0;
  const auto door = OpenDoor(listener_, name_, [&](Connection) { ++entered; });
  DoorName wrong = name_;
  wrong.secret = "secreT";
  EXPECT_EQ(EnterDoor(address(), wrong, 10'000, tls_).error().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(entered, 0);
}

TEST_P(DoorTest, ThereIsOneOfEachNameWhileItIsOpen) {
  auto door = OpenDoor(listener_, name_, [](Connection) {});
  ASSERT_TRUE(door.has_value());
  EXPECT_EQ(OpenDoor(listener_, name_, [](Connection) {}).error().code(),
            StatusCode::kAlreadyExists);
  door->reset();
  EXPECT_TRUE(OpenDoor(listener_, name_, [](Connection) {}).has_value());
}

TEST_P(DoorTest, WhereNobodyListensOrAnswersItSaysSo) {
  // Of a mesh that is over by the time: refused at once.
  DoorName newer = name_;
  newer.generation = 6;
  const auto door = OpenDoor(listener_, newer, [](Connection) {});
  EXPECT_EQ(EnterDoor(address(), name_, 10'000, tls_).error().code(), StatusCode::kUnauthenticated);
  std::string nobody = address();
  listener_.reset();
  EXPECT_FALSE(EnterDoor("127.0.0.1:1", name_, 10'000, tls_).has_value());
  EXPECT_FALSE(EnterDoor("no address", name_, 10'000, tls_).has_value());
}

INSTANTIATE_TEST_SUITE_P(PlainAndTls, DoorTest, ::testing::Bool());

}  // namespace
}  // namespace meshwright::collective
