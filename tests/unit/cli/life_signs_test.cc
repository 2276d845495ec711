#include "cli/life_signs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "base/file.h"
#include "base/unique_fd.h"
#include "tests/fake_clock.h"

namespace meshwright::cli {
namespace {

class LifeSignsTest : public ::testing::Test {
 protected:
  // With a manager that bears 30 s of silence.
  void SetUp() override {
    folder_ = std::make_unique<TempDir>(TempDir::Make().value());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, folder_->File("notify").c_str(), sizeof(address.sun_path) - 1);
    socket_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  LifeSigns Make(const std::string& silence_us) {
    return LifeSigns(Notifier::Open([&](const std::string& name) -> std::optional<std::string> {
                       if (name == "NOTIFY_SOCKET") return folder_->File("notify");
                       if (name == "WATCHDOG_USEC" && !silence_us.empty()) return silence_us;
                       return std::nullopt;
                     }).value(),
                     clock_);
  }

  std::vector<std::string> Told() {
    std::vector<std::string> told;
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(socket_.get(), buffer, sizeof(buffer), 0)) >= 0;) {
      told.emplace_back(buffer, static_cast<size_t>(count));
    }
    return told;
  }

  using Lines = std::vector<std::string>;
  FakeClock clock_;
  std::unique_ptr<TempDir> folder_;
  UniqueFd socket_;
};

Status Works() { return OkStatus(); }

TEST_F(LifeSignsTest, ReadyIsToldOnceAndOnlyWhenItIsTrue) {
  LifeSigns signs = Make("30000000");
  signs.Look(false, "looks for the controller", Works);
  EXPECT_EQ(Told(), Lines{"STATUS=looks for the controller"});
  clock_.AdvanceMs(60'000);
  signs.Look(false, "looks for the controller", Works);
  EXPECT_EQ(Told(), Lines{}) << "nobody counts before it is ready";
  signs.Look(true, "has joined", Works);
  EXPECT_EQ(Told(), Lines{"READY=1\nSTATUS=has joined"});
  signs.Look(true, "has joined", Works);
  EXPECT_EQ(Told(), Lines{});
  signs.Look(false, "looks for the controller", Works);
  signs.Look(true, "has joined", Works);
  EXPECT_EQ(Told(), (Lines{"STATUS=looks for the controller", "STATUS=has joined"}));
  signs.Stop("");
  EXPECT_EQ(Told(), Lines{"STOPPING=1"});
}

TEST_F(LifeSignsTest, IsAliveAtHalfOfTheManagersPatience) {
  LifeSigns signs = Make("30000000");
  EXPECT_EQ(signs.look_ms(200), 200);
  EXPECT_EQ(signs.look_ms(1 << 30), 1000);
  signs.Look(true, "", Works);
  EXPECT_EQ(Told(), Lines{"READY=1"});
  clock_.AdvanceMs(14'999);
  signs.Look(true, "", Works);
  EXPECT_EQ(Told(), Lines{});
  clock_.AdvanceMs(1);
  signs.Look(true, "", Works);
  EXPECT_EQ(Told(), Lines{"WATCHDOG=1"});
  clock_.AdvanceMs(15'000);
  signs.Look(true, "", Works);
  EXPECT_EQ(Told(), Lines{"WATCHDOG=1"});
}

TEST_F(LifeSignsTest, OneThatIsStuckFallsSilentAndRecovers) {
  LifeSigns signs = Make("30000000");
  signs.Look(true, "listens", Works);
  Told();
  clock_.AdvanceMs(15'000);
  const auto stuck = [] { return Unavailable("the control loop did not answer within 2 s"); };
  signs.Look(true, "listens", stuck);
  EXPECT_EQ(Told(), Lines{"STATUS=the control loop did not answer within 2 s"});
  // At the next look, not half of the patience later: that would be too late.
  clock_.AdvanceMs(1000);
  signs.Look(true, "listens", Works);
  EXPECT_EQ(Told(), (Lines{"STATUS=listens", "WATCHDOG=1"}));
}

TEST_F(LifeSignsTest, NobodyIsAskedWhereNobodyWatches) {
  LifeSigns signs = Make("");
  EXPECT_EQ(signs.look_ms(1 << 30), 1 << 30);
  bool asked = false;
  for (int i = 0; i < 3; ++i) {
    clock_.AdvanceMs(60'000);
    signs.Look(true, "listens", [&asked] {
      asked = true;
      return OkStatus();
    });
  }
  EXPECT_EQ(Told(), Lines{"READY=1\nSTATUS=listens"});
  EXPECT_FALSE(asked);
}

TEST_F(LifeSignsTest, LooksOftenWhereTheManagerIsImpatient) {
  EXPECT_EQ(Make("400000").look_ms(200), 50);
  EXPECT_EQ(Make("1000").look_ms(200), 1);
}

}  // namespace
}  // namespace meshwright::cli
