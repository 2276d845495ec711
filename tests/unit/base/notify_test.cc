#include "base/notify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>

#include "base/file.h"

namespace meshwright {
namespace {

Notifier::Environment Of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// The socket of a service manager, in the file system or, with '@', outside of it.
class Manager {
 public:
  explicit Manager(const std::string& name)
      : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  }
  // The next message; "" when there is none.
  std::string Next() const {
    char buffer[4096];
    const ssize_t count = recv(fd_.get(), buffer, sizeof(buffer), 0);
    return count < 0 ? "" : std::string(buffer, static_cast<size_t>(count));
  }

 private:
  UniqueFd fd_;
};

TEST(Notifier, IsSilentWhereNobodyAsked) {
  const Notifier notifier = Notifier::Open(Of({{"WATCHDOG_USEC", "2000000"}})).value();
  EXPECT_FALSE(notifier.listened_to());
  EXPECT_EQ(notifier.alive_every_ms(), 0);
  EXPECT_TRUE(notifier.Ready("serving").ok());
  EXPECT_TRUE(notifier.Alive().ok());
  EXPECT_TRUE(notifier.Stopping("").ok());
}

TEST(Notifier, TellsASocketOfTheFileSystem) {
  const TempDir folder = TempDir::Make().value();
  const Manager manager(folder.File("notify"));
  const Notifier notifier = Notifier::Open(Of({{"NOTIFY_SOCKET", folder.File("notify")}})).value();
  EXPECT_TRUE(notifier.listened_to());
  EXPECT_TRUE(notifier.Ready("listens on 127.0.0.1:7700").ok());
  EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=listens on 127.0.0.1:7700");
  EXPECT_TRUE(notifier.Alive().ok());
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_TRUE(notifier.Say("two\nlines").ok());
  EXPECT_EQ(manager.Next(), "STATUS=two lines");
  EXPECT_TRUE(notifier.Stopping("").ok());
  EXPECT_EQ(manager.Next(), "STOPPING=1");
  EXPECT_EQ(manager.Next(), "");
}

TEST(Notifier, TellsASocketThatIsInNoFileSystem) {
  const std::string name = fmt::format("@meshwright-notify-test-{}", getpid());
  const Manager manager(name);
  const Notifier notifier = Notifier::Open(Of({{"NOTIFY_SOCKET", name}})).value();
  EXPECT_TRUE(notifier.Ready("").ok());
  EXPECT_EQ(manager.Next(), "READY=1");
}

TEST(Notifier, IsAliveTwiceAsOftenAsItsOwnWatchdogAsks) {
  const std::string name = fmt::format("@meshwright-watchdog-test-{}", getpid());
  const auto every_ms = [&](const std::string& silence_us, const std::string& pid) {
    return Notifier::Open(
               Of({{"NOTIFY_SOCKET", name}, {"WATCHDOG_USEC", silence_us}, {"WATCHDOG_PID", pid}}))
        .value()
        .alive_every_ms();
  };
  EXPECT_EQ(every_ms("30000000", std::to_string(getpid())), 15'000);
  EXPECT_EQ(every_ms("30000000", ""), 15'000);
  EXPECT_EQ(every_ms("1000", ""), 1);
  EXPECT_EQ(every_ms("30000000", std::to_string(getpid() + 1)), 0);
}

TEST(Notifier, SaysThatTheManagerIsGone) {
  const TempDir folder = TempDir::Make().value();
  const Notifier notifier = Notifier::Open(Of({{"NOTIFY_SOCKET", folder.File("nobody")}})).value();
  EXPECT_EQ(notifier.Ready("").code(), StatusCode::kUnavailable);
}

TEST(Notifier, RefusesVariablesThatNoManagerSets) {
  for (const std::string& name :
       {std::string("relative"), std::string("/"), std::string("@"), "/" + std::string(107, 'x')}) {
    const auto opened = Notifier::Open(Of({{"NOTIFY_SOCKET", name}}));
    ASSERT_FALSE(opened.has_value()) << name;
    EXPECT_EQ(opened.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(opened.error().message().find("NOTIFY_SOCKET"), std::string::npos);
  }
  for (const char* silence : {"soon", "-1", "0", "12s"}) {
    const auto opened = Notifier::Open(Of({{"NOTIFY_SOCKET", "@x"}, {"WATCHDOG_USEC", silence}}));
    ASSERT_FALSE(opened.has_value()) << silence;
    EXPECT_NE(opened.error().message().find("WATCHDOG_USEC"), std::string::npos);
  }
}

}  // namespace
}  // namespace meshwright
