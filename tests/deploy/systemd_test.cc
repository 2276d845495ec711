// The units of deploy/systemd, and what the processes tell the manager that starts them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <regex>

#include "base/file.h"
#include "base/unique_fd.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::vector<std::string>& Units() {
  static const std::vector<std::string> units = {"meshwright-controller.service",
                                                 "meshwright-worker.service"};
  return units;
}

// The unit in a folder, with the binary that was built in the place of the one that is installed.
std::string Installed(const TempDir& folder, const std::string& unit) {
  std::string text = DeployFile("systemd/" + unit);
  text = std::regex_replace(text, std::regex("/usr/bin/meshwright"), MESHWRIGHT_BINARY);
  EXPECT_TRUE(WriteFileAtomic(folder.File(unit), text).ok());
  return folder.File(unit);
}

TEST(SystemdUnits, AreAcceptedWithoutAWord) {
  MW_NEEDS("systemd-analyze");
  const TempDir folder = TempDir::Make().value();
  for (const std::string& unit : Units()) {
    const Answer answer = Ask({"systemd-analyze", "verify", "--recursive-errors=no", "--man=no",
                               Installed(folder, unit)});
    EXPECT_TRUE(answer.ok) << answer.text;
    EXPECT_THAT(answer.text, ::testing::Not(HasSubstr(unit))) << unit;
  }
}

TEST(SystemdUnits, AreHardened) {
  MW_NEEDS("systemd-analyze");
  const TempDir folder = TempDir::Make().value();
  for (const std::string& unit : Units()) {
    // Exposure of at most 4.0 of 10.
    const Answer answer = Ask({"systemd-analyze", "security", "--offline=true", "--threshold=40",
                               "--no-pager", Installed(folder, unit)});
    EXPECT_TRUE(answer.ok) << unit << "\n" << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("Overall exposure level for " + unit));
  }
}

TEST(SystemdUnits, UseOptionsThatThereAre) {
  for (const std::string& unit : Units()) {
    const std::string command = unit == Units()[0] ? "controller" : "worker";
    std::string commands;
    std::smatch line;
    const std::string text = DeployFile("systemd/" + unit);
    const std::regex lines("(ExecStart=.*|Environment=\"MESHWRIGHT_.*)");
    for (auto it = std::sregex_iterator(text.begin(), text.end(), lines);
         it != std::sregex_iterator(); ++it) {
      commands += it->str() + "\n";
    }
    EXPECT_THAT(commands, ::testing::AnyOf(HasSubstr("--cert-init"), HasSubstr("--join @")))
        << unit;
    EXPECT_THAT(UnknownOptions(command, commands), IsEmpty()) << unit;
  }
}

// The manager's end of $NOTIFY_SOCKET.
class Manager {
 public:
  Manager() : folder_(TempDir::Make().value()), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  std::string path() const { return folder_.File("notify"); }

  // Waits for a message that begins so; what came instead when none does.
  std::string Await(const std::string& begin) const {
    const Deadline deadline = Deadline::After(30'000);
    std::string all;
    while (!deadline.expired()) {
      pollfd poll_fd{fd_.get(), POLLIN, 0};
      if (poll(&poll_fd, 1, static_cast<int>(deadline.remaining_ms())) <= 0) continue;
      char buffer[4096];
      const ssize_t count = recv(fd_.get(), buffer, sizeof(buffer), 0);
      const std::string message(buffer, static_cast<size_t>(std::max<ssize_t>(count, 0)));
      if (message.rfind(begin, 0) == 0) return message;
      all += message + "\n";
    }
    return "no " + begin + ", but:\n" + all;
  }

 private:
  TempDir folder_;
  UniqueFd fd_;
};

std::unique_ptr<Subprocess> Start(const Manager& manager, std::vector<std::string> args,
                                  const std::string& log) {
  SubprocessOptions options;
  options.args = {MESHWRIGHT_BINARY};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.env = {{"NOTIFY_SOCKET", manager.path()},
                 {"WATCHDOG_USEC", "2000000"},
                 {"MESHWRIGHT_PROFILE", "off"}};
  options.stdout_to = OutputTo::File(log);
  options.stderr_to = OutputTo::File(log);
  options.death_signal = SIGKILL;
  return Subprocess::Start(options).value();
}

// "127.0.0.1:PORT" of "READY=1\nSTATUS=listens on 127.0.0.1:PORT".
std::string AddressIn(const std::string& ready) { return ready.substr(ready.rfind(' ') + 1); }

TEST(SystemdService, AWorkerIsReadyOnceItHasJoinedAndBothSayThatTheyLiveAndStop) {
  const TempDir folder = TempDir::Make().value();
  const Manager of_controller;
  const Manager of_worker;
  std::vector<std::string> controller_args = {
      "controller", "--port", "0", "--metrics-port", "-1", "--state-dir", folder.File("state")};
  auto controller = Start(of_controller, controller_args, folder.File("log"));
  const std::string ready = of_controller.Await("READY=1");
  ASSERT_THAT(ready, StartsWith("READY=1\nSTATUS=listens on 127.0.0.1:"));
  EXPECT_EQ(of_controller.Await("WATCHDOG=1"), "WATCHDOG=1");
  EXPECT_THAT(of_controller.Await("WATCHDOG=1"), StartsWith("WATCHDOG=1"));

  // It stops, and a worker that looks for it is not ready until it is there again.
  ASSERT_TRUE(controller->Signal(SIGTERM).ok());
  EXPECT_THAT(of_controller.Await("STOPPING=1"), StartsWith("STOPPING=1"));
  EXPECT_EQ(controller->Wait(30'000).value().code, 0);
  auto worker = Start(of_worker, {"worker", "--device", "cpu", "--address", AddressIn(ready)},
                      folder.File("worker-log"));
  EXPECT_EQ(of_worker.Await("STATUS="), "STATUS=looks for the controller");
  controller_args[2] = AddressIn(ready).substr(AddressIn(ready).rfind(':') + 1);
  controller = Start(of_controller, controller_args, folder.File("log"));
  EXPECT_THAT(of_worker.Await(""), StartsWith("READY=1"));
  EXPECT_EQ(of_worker.Await("WATCHDOG=1"), "WATCHDOG=1");
  ASSERT_TRUE(worker->Signal(SIGTERM).ok());
  EXPECT_THAT(of_worker.Await("STOPPING=1"), StartsWith("STOPPING=1"));
  EXPECT_EQ(worker->Wait(30'000).value().code, 0);
}

}  // namespace
}  // namespace meshwright::testing
