// Starts that cannot work: each is refused in seconds with a message that names cause and fix.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Refusals : public FaultFixture {};

// ---- Configuration ----

TEST_F(Refusals, MalformedJobFilesSayWhereAndWhatWasMeant) {
  struct Case {
    const char* text;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {"[training\nsteps = 3\n", {"job.toml:1:", "expected ']'"}},
      {"[training]\nsteps =\n", {"job.toml:2:", "value"}},
      {"[training]\nstepz = 3\n", {"job.toml:2:1", "'stepz'", "did you mean 'steps'?"}},
      {"[trainig]\nsteps = 3\n", {"job.toml:1:", "[trainig]", "did you mean 'training'?"}},
      {"[model]\nsteps = 3\n", {"job.toml:2:1", "it belongs to [training]"}},
      {"[training]\nsteps = \"many\"\n", {"job.toml:2:9", "training.steps", "an integer", "many"}},
      {"[training]\ndataset_format = \"utf8\"\n", {"job.toml:2:18", "bytes", "uint16", "utf8"}},
  };
  for (const Case& c : cases) {
    const std::string file = Write("job.toml", c.text);
    for (const char* command : {"validate", "submit"}) {
      std::vector<std::string> args = {command, file};
      // No controller runs at this address: a bad file must be found before anyone is asked.
      if (std::string(command) == "submit") args.insert(args.begin(), {"--address", "127.0.0.1:1"});
      if (std::string(command) == "validate") args.insert(args.begin(), "config");
      const Failure failure = Fails(args);
      EXPECT_EQ(failure.code, 2) << failure.text;
      for (const char* word : c.words) EXPECT_THAT(failure.text, HasSubstr(word)) << c.text;
    }
  }
}

TEST_F(Refusals, MissingJobFileAndMissingControllerAreToldApart) {
  const Failure no_file = Fails({"submit", dir_.File("none.toml")});
  EXPECT_EQ(no_file.code, 2);
  EXPECT_THAT(no_file.text, HasSubstr("none.toml"));
  const std::string data = Write("data.txt", SampleText(9'000));
  const Failure alone =
      Fails({"--address", "127.0.0.1:1", "submit", Write("job.toml", JobFile(data, 1, 1, 3))});
  EXPECT_EQ(alone.code, 3);
  EXPECT_THAT(alone.text, AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("meshwright up")));
}

TEST_F(Refusals, AWorkerBinaryThatCannotRunIsFoundBeforeAnythingStarts) {
  const std::string text = Write("text", "no program\n");
  for (const std::string& binary : {dir_.File("none"), text, dir_.path()}) {
    const Failure failure = Fails({"up", "--worker-binary", binary, "--dir", dir_.File("run")});
    EXPECT_EQ(failure.code, 2) << failure.text;
    EXPECT_THAT(failure.text, HasSubstr("--worker-binary " + binary));
  }
  EXPECT_FALSE(FileExists(dir_.File("run")));
}

TEST_F(Refusals, AWorkerBinaryThatIsNoWorkerIsTold) {
  const Failure failure = Fails({"up", "--worker-binary", "/bin/true", "--dir", dir_.File("run"),
                                 "--port", "0", "--metrics-port", "0"});
  EXPECT_EQ(failure.code, 1) << failure.text;
  EXPECT_THAT(failure.text, HasSubstr("worker-0 ended "));
  EXPECT_FALSE(FileExists(dir_.File("run/cluster.txt"))) << "what was started is stopped";
}

// ---- Devices ----

TEST_F(Refusals, AWorkerThatMustHaveGpusSaysWhyItHasNone) {
  const std::vector<std::string> worker = {"--address", "127.0.0.1:1", "worker"};
  std::vector<std::string> args = worker;
  args.insert(args.end(), {"--device", "cuda", "--gpus", "1000"});
  const Failure failure = Fails(args);
  EXPECT_NE(failure.code, 0);
  EXPECT_THAT(failure.text,
              AnyOf(HasSubstr("no GPU can be used: "), HasSubstr("GPU 1000 asked for")));
  args = worker;
  args.insert(args.end(), {"--device", "cpu", "--gpus", "0"});
  const Failure both = Fails(args);
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.text, HasSubstr("--gpus names GPUs, --device cpu wants none"));
  args = worker;
  args.insert(args.end(), {"--devices", "3", "--gpus", "0,1"});
  EXPECT_THAT(Fails(args).text, HasSubstr("--gpus names 2 GPUs, --devices 3"));
}

// ---- Ports ----

// A port of loopback that this process listens on.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool listens = ::bind(fd_.get(), generic, length) == 0 && ::listen(fd_.get(), 1) == 0 &&
                         ::getsockname(fd_.get(), generic, &length) == 0;
    EXPECT_TRUE(listens);
    text_ = std::to_string(ntohs(address.sin_port));
  }
  const std::string& text() const { return text_; }

 private:
  const UniqueFd fd_;
  std::string text_;
};

TEST_F(Refusals, PortsInUseAreNamedWithTheWayOut) {
  const TakenPort taken;
  const std::string state = dir_.File("state");
  const std::vector<std::string> commands[] = {
      {"controller", "--state-dir", state, "--metrics-port", "0", "--port", taken.text()},
      {"controller", "--state-dir", state, "--port", "0", "--metrics-port", taken.text()},
      {"worker", "--address", "127.0.0.1:1", "--data-port", taken.text()},
      {"worker", "--address", "127.0.0.1:1", "--metrics-port", taken.text()},
      {"up", "--dir", dir_.File("up"), "--metrics-port", "0", "--port", taken.text()},
      {"up", "--dir", dir_.File("up"), "--port", "0", "--metrics-port", taken.text()},
  };
  for (const std::vector<std::string>& command : commands) {
    const Failure failure = Fails(command);
    EXPECT_THAT(failure.text, AllOf(HasSubstr(taken.text()), HasSubstr("in use"),
                                    AnyOf(HasSubstr("choose another"), HasSubstr("--port"))))
        << command[0];
  }
  EXPECT_FALSE(FileExists(dir_.File("up/cluster.txt"))) << "`up` believes that something runs";
}

TEST_F(Refusals, SecondControllerOnPortOrStateSaysSoAndDisturbsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string port = cluster().address().substr(cluster().address().rfind(':') + 1);
  const Failure same_port = Fails(
      {"controller", "--port", port, "--metrics-port", "0", "--state-dir", dir_.File("other")});
  EXPECT_THAT(same_port.text, AllOf(HasSubstr(port), HasSubstr("choose another --port")));
  const Failure same_state = Fails(
      {"controller", "--port", "0", "--metrics-port", "0", "--state-dir", cluster().state_dir()});
  EXPECT_THAT(same_state.text,
              AllOf(HasSubstr(fmt::format("process {}", cluster().controller().pid())),
                    HasSubstr("choose another --state-dir")));
  ExpectAJobSucceeds(1, 1);
}

// ---- Tokens ----

TEST_F(Refusals, WrongOrMissingTokensAreRefusedAtOnce) {
  ProcessClusterOptions options;
  options.workers = 1;
  options.env = {{"MESHWRIGHT_TOKEN", "right"}};
  ASSERT_NO_FATAL_FAILURE(Start(options));
  const std::vector<std::string> commands[] = {
      {"--address", cluster().address(), "status"},
      {"--address", cluster().address(), "worker", "--name", "stranger"}};
  for (const std::vector<std::string>& command : commands) {
    const Failure wrong = Fails(command, {{"MESHWRIGHT_TOKEN", "wrong"}});
    EXPECT_EQ(wrong.code, 2) << wrong.text;
    EXPECT_THAT(wrong.text, AllOf(HasSubstr("the token is wrong"), HasSubstr("--token-file")));
    const Failure none = Fails(command, {{"MESHWRIGHT_TOKEN", ""}});
    EXPECT_EQ(none.code, 2) << none.text;
    EXPECT_THAT(none.text, AllOf(HasSubstr("wants a token"), HasSubstr("MESHWRIGHT_TOKEN")));
  }
  const std::string file = dir_.File("token");
  ASSERT_TRUE(WriteFileAtomic(file, "right\n", 0600).ok());
  const auto known =
      RunMeshwright({"--address", cluster().address(), "--token-file", file, "status"},
                    {{"MESHWRIGHT_TOKEN", ""}});
  ASSERT_TRUE(known.has_value()) << known.error();
  EXPECT_EQ(known->exit.code, 0) << known->stderr_text;
  ExpectAJobSucceeds(1, 1);
}

TEST_F(Refusals, ListeningBeyondLoopbackNeedsCertificates) {
  const Failure failure = Fails({"controller", "--bind", "0.0.0.0", "--port", "0", "--metrics-port",
                                 "0", "--state-dir", dir_.File("state")},
                                {{"MESHWRIGHT_TOKEN", ""}, {"MESHWRIGHT_TLS_HOME", dir_.path()}});
  EXPECT_EQ(failure.code, 2);
  EXPECT_THAT(failure.text, AllOf(HasSubstr("0.0.0.0"), HasSubstr("`meshwright cert init`"),
                                  HasSubstr("bind to 127.0.0.1"), HasSubstr("--insecure")));
}

}  // namespace
}  // namespace meshwright::testing
