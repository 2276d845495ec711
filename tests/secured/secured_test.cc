// A cluster whose processes show certificates to each other, from `cert init` to the end of a job:
// who may do what, hosts that join, certificates that change while a job runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/listen_address.h"
#include "base/secret_file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/tls_identity.h"
#include "base/unique_fd.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "security/tls_probe.h"
#include "worker/agent.h"
#include "worker/identity.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSoonMs = 60'000;

template <typename Condition>
bool Await(const Condition& holds) {
  const Deadline deadline = Deadline::After(kSoonMs);
  while (!holds()) {
    if (deadline.expired()) return false;
    ::poll(nullptr, 0, 20);
  }
  return true;
}

class Secured : public ::testing::Test {
 protected:
  void SetUp() override {
    Must({"cert", "init", "--dir", home()});
    ASSERT_TRUE(WriteSecretFile(dir_.File("join"), JoinToken({})).ok());
    Start("controller", {"--tls-dir", home() + "/controller", "controller", "--port", "0",
                         "--metrics-port", "0", "--state-dir", dir_.File("state")});
    ASSERT_TRUE(Await([this] {
      const std::string log = LogOf("controller");
      const std::string before = "controller listens on ";
      const size_t at = log.find(before);
      if (at == std::string::npos) return false;
      address_ = log.substr(at + before.size(), log.find(',', at) - at - before.size());
      return true;
    })) << LogOf("controller");
  }
  void TearDown() override {
    while (!processes_.empty()) {
      (void)processes_.back()->Terminate(kSoonMs);
      processes_.pop_back();
    }
  }

  std::string home() const { return dir_.File("tls"); }
  std::string LogOf(const std::string& name) const {
    return ReadFile(dir_.File(name + ".log")).value_or("");
  }

  ProcessOutput Run(std::vector<std::string> args) {
    args.insert(args.begin(), MESHWRIGHT_BINARY);
    SubprocessOptions options;
    options.args = std::move(args);
    options.env = {{"MESHWRIGHT_TLS_HOME", home()}, {"TMPDIR", dir_.path()}};
    options.death_signal = SIGKILL;
    auto output = RunProcess(options, kSoonMs);
    EXPECT_TRUE(output.has_value()) << output.error();
    return output.has_value() ? *std::move(output) : ProcessOutput{};
  }
  std::string Must(std::vector<std::string> args) {
    const ProcessOutput output = Run(std::move(args));
    EXPECT_EQ(output.exit.code, 0) << output.stdout_text << output.stderr_text;
    return output.stdout_text;
  }
  // What this identity is told.
  ProcessOutput As(const std::string& folder, std::vector<std::string> args) {
    args.insert(args.begin(), {"--tls-dir", folder, "--address", address_});
    return Run(std::move(args));
  }
  ProcessOutput AsOperator(std::vector<std::string> args) {
    return As(home() + "/operator", std::move(args));
  }
  std::string JoinToken(std::vector<std::string> more) {
    more.insert(more.begin(), {"cert", "join-token", "--dir", home()});
    return Must(std::move(more));
  }

  // A secret in each place that a user has one in: none is in the archive, and all else is.
  void ExpectBundleWithoutSecrets() {
    ASSERT_TRUE(MakeDirs(dir_.File("config/meshwright")).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_.File("config/meshwright/config.toml"),
                                "address = \"" + address_ + "\"  # password=in-the-config-81\n")
                    .ok());
    ASSERT_TRUE(WriteSecretFile(dir_.File("token"), "in-the-token-file-93").ok());
    // What was measured is told before it is kept.
    ASSERT_TRUE(Await([this] { return AsOperator({"why", "1"}).exit.code == 0; }));
    SubprocessOptions options;
    options.args = {MESHWRIGHT_BINARY,
                    "--tls-dir",
                    home() + "/operator",
                    "--address",
                    address_,
                    "--token-file",
                    dir_.File("token"),
                    "support-bundle",
                    "--out",
                    dir_.File("bundle.tar")};
    options.env = {{"MESHWRIGHT_TLS_HOME", home()},
                   {"TMPDIR", dir_.path()},
                   {"XDG_CONFIG_HOME", dir_.File("config")},
                   {"MESHWRIGHT_TOKEN", "in-the-environment-57"},
                   {"MESHWRIGHT_NOTE", "the file has in-the-token-file-93"}};
    const auto output = RunProcess(options, kSoonMs);
    ASSERT_TRUE(output.has_value()) << output.error();
    EXPECT_EQ(output->exit.code, 0) << output->stderr_text;
    EXPECT_EQ(output->stderr_text, "") << "a part is missing";
    const std::string tar = ReadFile(dir_.File("bundle.tar")).value();
    for (const char* part :
         {"version.txt", "doctor.txt", "controller/controller.log", "controller/metrics.prom",
          "workers/w0.log", "jobs/1/config.resolved.toml", "jobs/1/plan.txt",
          "jobs/1/events.log"}) {
      EXPECT_THAT(tar, HasSubstr("\"name\": \"" + std::string(part) + "\"")) << part;
    }
    EXPECT_THAT(tar, HasSubstr("meshwright_steps_total{job_id=\"1\"} 5"));
    for (const char* secret : {"in-the-config-81", "in-the-token-file-93", "in-the-environment-57",
                               "in-the-job-file-64"}) {
      EXPECT_THAT(tar, Not(HasSubstr(secret)));
    }
    for (const std::string& line : Split(ReadFile(home() + "/operator/key.pem").value(), '\n')) {
      if (line.size() > 16 && !line.starts_with("-----")) {
        EXPECT_THAT(tar, Not(HasSubstr(line)));
      }
    }
    struct stat found {};
    ASSERT_EQ(::stat(dir_.File("bundle.tar").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U);
  }

  Subprocess& Start(const std::string& name, std::vector<std::string> args) {
    args.insert(args.begin(), MESHWRIGHT_BINARY);
    SubprocessOptions options;
    options.args = std::move(args);
    options.env = {{"MESHWRIGHT_TLS_HOME", home()}, {"TMPDIR", dir_.path()}};
    options.stdout_to = OutputTo::File(dir_.File(name + ".log"));
    options.stderr_to = OutputTo::File(dir_.File(name + ".log"));
    options.death_signal = SIGKILL;
    auto started = Subprocess::Start(options);
    EXPECT_TRUE(started.has_value()) << started.error();
    processes_.push_back(*std::move(started));
    return *processes_.back();
  }
  Subprocess& StartWorker(const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> args = {"--tls-dir", dir_.File(name), "worker", "--name",
                                     name,        "--address",     address_, "--device",
                                     "cpu",       "--profile",     "off"};
    args.insert(args.end(), more.begin(), more.end());
    return Start(name, args);
  }
  void JoinWorker(const std::string& name) {
    StartWorker(name, {"--join", "@" + dir_.File("join")});
    ASSERT_TRUE(Await([&] { return IsReady(name); })) << LogOf(name);
  }
  bool IsReady(const std::string& name) {
    const ProcessOutput status = AsOperator({"-o", "json", "status"});
    const json cluster = json::parse(status.stdout_text, nullptr, /*allow_exceptions=*/false);
    if (!cluster.is_object()) return false;
    for (const json& worker : cluster["workers"]) {
      if (worker["name"] == name && worker["state"] == "READY") return true;
    }
    return false;
  }

  std::string WriteJob(int steps) {
    std::string text;
    while (text.size() < 20'000) text += "the mesh runs what the plan of the device says.\n";
    EXPECT_TRUE(WriteFileAtomic(dir_.File("data.txt"), text).ok());
    const std::string job = fmt::format(
        "[job]\ndescription = \"api_key=in-the-job-file-64\"\n"
        "[model]\nname = \"gpt2\"\nvocab_size = 256\ndim = 32\nn_layers = 2\nn_heads = "
        "4\n[parallelism]\ndata_parallel_replicate_degree = 2\n[training]\n"
        "dataset_path = \"{}\"\nglobal_batch_size = 4\nseq_len = 32\nsteps = {}\n"
        "[validation]\nbatches = 0\n",
        dir_.File("data.txt"), steps);
    EXPECT_TRUE(WriteFileAtomic(dir_.File("job.toml"), job).ok());
    return dir_.File("job.toml");
  }
  std::vector<json> Audit() {
    std::vector<json> lines;
    for (const std::string& line :
         Split(ReadFile(dir_.File("state/audit.jsonl")).value_or(""), '\n')) {
      if (!line.empty()) lines.push_back(json::parse(line));
    }
    return lines;
  }
  bool IsAudited(const std::string& who, const std::string& what, const std::string& answer) {
    return LineOf(who, what, answer).is_object();
  }
  // The last such line; null: there is none.
  json LineOf(const std::string& who, const std::string& what, const std::string& answer) {
    json found;
    for (const json& line : Audit()) {
      if (line["who"] == who && line["what"] == what &&
          line["answer"].get<std::string>().find(answer) != std::string::npos)
        found = line;
    }
    return found;
  }

  TempDir dir_ = TempDir::Make("mw-secured").value();
  std::string address_;
  std::vector<std::unique_ptr<Subprocess>> processes_;  // the controller first
};

TEST_F(Secured, JobRunsFromCertificatesToItsWeights) {
  JoinWorker("w0");
  JoinWorker("w1");
  struct stat key {};
  ASSERT_EQ(::stat(dir_.File("w0/key.pem").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777U, 0600U);
  const ProcessOutput done =
      AsOperator({"submit", WriteJob(5), "--quiet", "--set", "checkpoint.enable=true", "--set",
                  "checkpoint.interval=5"});
  EXPECT_EQ(done.exit.code, 0) << done.stdout_text << done.stderr_text;
  EXPECT_TRUE(FileExists(dir_.File("state/jobs/1/model.safetensors")));
  const TlsIdentity own = LoadTlsIdentity(home() + "/operator").value();
  const std::string operator_name = security::ReadCertificate(own.cert_pem)->subject->name;
  EXPECT_TRUE(IsAudited(operator_name, "JobService/Submit", "ok"));
  EXPECT_THAT(Must({"--tls-dir", home() + "/operator", "--address", address_, "describe", "1"}),
              HasSubstr("owner       " + operator_name + "\n"));
  // What opens a session is read of somebody who is known, so that the log says of which job.
  Must({"cert", "issue", "viewer", "bob", "--dir", home(), "--out", dir_.File("bob")});
  EXPECT_EQ(As(dir_.File("bob"), {"predict", "1", "the mesh"}).exit.code, 2);
  EXPECT_THAT(LineOf("bob", "JobService/Interact", "permission denied")["on"].dump(),
              HasSubstr("job 1"));
  // Who may look sees what is kept, and removes nothing.
  const ProcessOutput kept = As(dir_.File("bob"), {"checkpoint", "ls", "1"});
  EXPECT_EQ(kept.exit.code, 0) << kept.stderr_text;
  EXPECT_THAT(kept.stdout_text, HasSubstr("\n5  "));
  EXPECT_EQ(As(dir_.File("bob"), {"checkpoint", "rm", "1", "--step", "5"}).exit.code, 2);
  EXPECT_TRUE(AsOperator({"checkpoint", "ls", "1"}).stdout_text == kept.stdout_text);
  ExpectBundleWithoutSecrets();
  EXPECT_TRUE(IsAudited("", "TrustService/Join", "ok"));
  EXPECT_TRUE(IsAudited("w0", "WorkerService/Session", "ok"));
}

TEST_F(Secured, StrangersAndRolesAreRefusedByName) {
  const std::string eve = dir_.File("eve");
  Must({"cert", "init", "--dir", dir_.File("elsewhere")});
  Must({"cert", "issue", "operator", "eve", "--dir", dir_.File("elsewhere"), "--out", eve});
  const ProcessOutput foreign = As(eve, {"status"});
  EXPECT_EQ(foreign.exit.code, 2);
  EXPECT_THAT(foreign.stderr_text, HasSubstr("no controller that " + eve + "/ca.pem vouches for"));
  // She believes this cluster's authority, which does not believe her: kept from the command by its
  // own check, so by hand.
  ASSERT_TRUE(WriteFileAtomic(eve + "/ca.pem", ReadFile(home() + "/ca/ca.pem").value()).ok());
  EXPECT_THAT(As(eve, {"status"}).stderr_text, HasSubstr("was not signed by the authority"));
  const Status refused = security::ExplainRefusal(address_, eve, Deadline::After(kSoonMs));
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("does not believe the certificate of operator 'eve'"));

  const std::string bob = dir_.File("bob");
  Must({"cert", "issue", "viewer", "bob", "--dir", home(), "--out", bob});
  EXPECT_EQ(As(bob, {"status"}).exit.code, 0);
  const ProcessOutput acting = As(bob, {"cancel", "1"});
  EXPECT_EQ(acting.exit.code, 2);
  EXPECT_THAT(acting.stderr_text, HasSubstr("viewer 'bob' may not call JobService/Cancel"));
  const json refused_cancel = LineOf("bob", "JobService/Cancel", "permission denied");
  ASSERT_TRUE(refused_cancel.is_object());
  EXPECT_EQ(refused_cancel["on"], "job 1");
  EXPECT_EQ(As(bob, {"worker", "cordon", "w7"}).exit.code, 2);
  EXPECT_EQ(LineOf("bob", "AdminService/OrderWorker", "permission denied")["on"],
            "worker w7: cordon");
  // Nor is a worker that speaks in the clear, which is told why.
  Subprocess& plain = Start("plain", {"--insecure", "worker", "--name", "w9", "--address", address_,
                                      "--device", "cpu", "--profile", "off"});
  ASSERT_TRUE(plain.Wait(kSoonMs).has_value()) << LogOf("plain");
  EXPECT_THAT(LogOf("plain"), AllOf(HasSubstr("speaks TLS"), HasSubstr("cert join-token"),
                                    Not(HasSubstr("start it with"))));
  // In the clear nobody is heard; who has a certificate in its place is not asked to say so.
  const ProcessOutput clear = Run({"--insecure", "--address", address_, "status"});
  EXPECT_EQ(clear.exit.code, 3);
  EXPECT_THAT(clear.stderr_text, HasSubstr("speaks TLS"));
  EXPECT_EQ(Run({"--address", address_, "status"}).exit.code, 0);
}

TEST_F(Secured, WorkerRegistersAsWhomItsCertificateNames) {
  Must({"cert", "issue", "worker", "w0", "--dir", home(), "--out", dir_.File("w0")});
  Subprocess& other = Start("other", {"--tls-dir", dir_.File("w0"), "worker", "--name", "w1",
                                      "--address", address_, "--device", "cpu"});
  ASSERT_TRUE(other.Wait(kSoonMs).has_value());
  EXPECT_THAT(LogOf("other"), HasSubstr("--name w1"));
  // What the command checks, the controller checks, too.
  worker::AgentOptions options;
  options.controller = address_;
  options.name = "w1";
  options.tls_dir = dir_.File("w0");
  options.metrics_port = -1;
  auto agent = worker::Agent::Start(options);
  ASSERT_TRUE(agent.has_value()) << agent.error();
  const Status end = (*agent)->Wait(kSoonMs);
  EXPECT_EQ(end.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(end.message(), AllOf(HasSubstr("worker 'w0'"), HasSubstr("register as 'w1'")));
  EXPECT_TRUE(IsAudited("w0", "WorkerService/Session", "register as 'w1'"));
  // Nor is an operator a worker.
  options.name = "w2";
  options.tls_dir = home() + "/operator";
  auto human = worker::Agent::Start(options);
  ASSERT_TRUE(human.has_value()) << human.error();
  EXPECT_THAT((*human)->Wait(kSoonMs).message(), HasSubstr("may not call WorkerService/Session"));
}

TEST_F(Secured, TokensLetInWhomTheyAreFor) {
  const auto join = [this](const std::string& name, const std::string& token) {
    return worker::Join({address_, token, name, dir_.File(name)});
  };
  const std::string once = JoinToken({"--once"});
  EXPECT_TRUE(join("w0", once).ok());
  EXPECT_THAT(join("w1", once).message(), HasSubstr("has been used"));
  const std::string named = JoinToken({"--name", "w2"});
  EXPECT_THAT(join("w1", named).message(), HasSubstr("for the worker 'w2'"));
  EXPECT_TRUE(join("w2", named).ok());
  // The name of another is not for everyone.
  EXPECT_TRUE(RemoveAll(dir_.File("w0")).ok());
  EXPECT_THAT(join("w0", JoinToken({})).message(), HasSubstr("has a certificate already"));
  EXPECT_TRUE(join("w0", JoinToken({"--replace"})).ok());
  // One of another cluster: its authority is not the one that answers.
  Must({"cert", "init", "--dir", dir_.File("elsewhere")});
  const std::string foreign = Must({"cert", "join-token", "--dir", dir_.File("elsewhere")});
  const Status other = join("w3", foreign);
  EXPECT_EQ(other.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(other.message(), HasSubstr("its authority is another one"));
  // The certificate is kept: the second start needs no token.
  StartWorker("w0", {});
  EXPECT_TRUE(Await([this] { return IsReady("w0"); })) << LogOf("w0");
}

TEST_F(Secured, CertificateThatIsRenewedInPlaceKeepsItsNames) {
  const std::string folder = home() + "/controller";
  const std::vector<std::string> again = {"cert",  "issue", "controller", "controller",
                                          "--dir", home(),  "--out",      folder};
  std::vector<std::string> named = again;
  named.insert(named.end(), {"--host", "head", "--host", "10.0.0.2"});
  Must(named);
  Must(again);
  EXPECT_THAT(Must({"--tls-dir", folder, "cert", "show"}),
              HasSubstr("names      controller.meshwright, head, 10.0.0.2\n"));
}

TEST_F(Secured, ReplacedHostIsNotRenewed) {
  const auto join = [this](const std::string& folder, const std::string& token) {
    return worker::Join({address_, token, "w0", dir_.File(folder)});
  };
  ASSERT_TRUE(join("old", JoinToken({})).ok());
  ASSERT_TRUE(join("new", JoinToken({"--replace"})).ok());
  const auto renew = [this](const std::string& folder) {
    const TlsIdentity identity = LoadTlsIdentity(dir_.File(folder)).value();
    const auto request = security::MakeKeyRequest(identity.key_pem).value();
    return internal::ToStatus(worker::AskRenewal(address_, dir_.File(folder), request.request_pem));
  };
  const Status old = renew("old");
  EXPECT_EQ(old.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(old.message(), HasSubstr("was given to another host"));
  EXPECT_TRUE(renew("new").ok());
}

TEST_F(Secured, ConnectionsOfStrangersEndByThemselves) {
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress there = ResolveNumeric("127.0.0.1", port).value();
  ASSERT_EQ(::connect(silent.get(), there.get(), there.bytes), 0);
  pollfd end{silent.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, static_cast<int>(kSoonMs)), 1) << "it may stay without a handshake";
  char byte = 0;
  EXPECT_LE(::read(silent.get(), &byte, 1), 0);
}

TEST_F(Secured, CertificatesChangeWhileAJobRunsAndNoStepIsLost) {
  JoinWorker("w0");
  JoinWorker("w1");
  const ProcessOutput submitted = AsOperator({"submit", WriteJob(1'000'000), "--no-wait"});
  ASSERT_EQ(submitted.exit.code, 0) << submitted.stderr_text;
  const std::string metrics = dir_.File("state/jobs/1/metrics.jsonl");
  const auto lines = [&metrics] {
    std::vector<std::string> all = Split(ReadFile(metrics).value_or(""), '\n');
    all.pop_back();  // what is being written
    return all;
  };
  ASSERT_TRUE(Await([&] { return lines().size() > 20; })) << LogOf("controller");
  // The controller's, for one with another name, so that it can be told apart.
  Must(
      {"cert", "issue", "controller", "renewed", "--dir", home(), "--out", home() + "/controller"});
  Must({"cert", "init", "--dir", dir_.File("elsewhere")});
  EXPECT_TRUE(Await([this] {
    return security::ExplainRefusal(address_, dir_.File("elsewhere") + "/operator",
                                    Deadline::After(kSoonMs))
               .message()
               .find("controller 'renewed'") != std::string::npos;
  }));
  // A worker's, by the call that it makes when it is time.
  const TlsIdentity before = LoadTlsIdentity(dir_.File("w0")).value();
  const auto renewed = worker::AskRenewal(address_, dir_.File("w0"),
                                          security::MakeKeyRequest(before.key_pem)->request_pem);
  ASSERT_TRUE(renewed.has_value()) << renewed.error();
  ASSERT_TRUE(
      security::WriteIdentity(dir_.File("w0"), {renewed->ca_pem, renewed->cert_pem, before.key_pem})
          .ok());
  EXPECT_NE(renewed->cert_pem, before.cert_pem);
  EXPECT_TRUE(IsAudited("w0", "TrustService/Renew", "ok"));
  const size_t then = lines().size();
  ASSERT_TRUE(Await([&] { return lines().size() > then + 20; })) << LogOf("controller");
  EXPECT_EQ(AsOperator({"cancel", "1"}).exit.code, 0);
  int64_t expected = 0;
  for (const std::string& line : lines()) {
    const json step = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!step.is_object() || !step.contains("step")) continue;
    const int64_t at = step["step"].get<int64_t>();
    if (expected != 0) {
      EXPECT_EQ(at, expected) << "a step was lost, or done twice";
    }
    expected = at + 1;
  }
  EXPECT_GT(expected, 20);
}

// What curl says of a path: the code in the last line, the header and the body before that.
class HttpsPage {
 public:
  // `name`: what the certificate has to say.
  HttpsPage(std::string ca, std::string port, std::string name = "controller.meshwright")
      : ca_(std::move(ca)), port_(std::move(port)), name_(std::move(name)) {}

  std::string Ask(const std::string& path, std::vector<std::string> more = {}) const {
    SubprocessOptions options;
    options.args = {"curl",
                    "-s",
                    "-i",
                    "--cacert",
                    ca_,
                    "--max-time",
                    "60",
                    "-w",
                    "\n%{http_code}",
                    "--connect-to",
                    name_ + ":443:127.0.0.1:" + port_};
    options.args.insert(options.args.end(), more.begin(), more.end());
    options.args.push_back("https://" + name_ + path);
    const auto output = RunProcess(options, kSoonMs);
    EXPECT_TRUE(output.has_value()) << output.error();
    return output.has_value() ? output->stdout_text : "";
  }
  std::string As(const std::string& token, const std::string& path,
                 std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"-H", "Authorization: Bearer " + token});
    return Ask(path, std::move(more));
  }

 private:
  std::string ca_;
  std::string port_;
  std::string name_;
};

TEST_F(Secured, PageIsTlsAndWantsTokens) {
  std::vector<std::string> args = {"--tls-dir", home() + "/controller", "controller"};
  args.insert(args.end(), {"--bind", "0.0.0.0", "--port", "0", "--metrics-port", "0"});
  args.insert(args.end(), {"--state-dir", dir_.File("far-state")});
  for (const char* of : {"page", "operator", "scrape"}) {
    ASSERT_TRUE(WriteSecretFile(dir_.File(of), of).ok());
    args.insert(args.end(), {fmt::format("--{}-token-file", of), dir_.File(of)});
  }
  Start("far", args);
  std::string port;
  ASSERT_TRUE(Await([&] {
    const std::string log = LogOf("far");
    const std::string before = "page on https://0.0.0.0:";
    const size_t at = log.find(before);
    const size_t end = log.find('/', at == std::string::npos ? at : at + before.size());
    if (end == std::string::npos) return false;
    port = log.substr(at + before.size(), end - at - before.size());
    return true;
  })) << LogOf("far");
  const HttpsPage page(home() + "/ca/ca.pem", port);
  const ProcessOutput wrong_port =
      Run({"--tls-dir", home() + "/operator", "--address", "127.0.0.1:" + port, "status"});
  EXPECT_EQ(wrong_port.exit.code, 3);
  EXPECT_THAT(wrong_port.stderr_text, HasSubstr("speaks HTTPS"));
  for (const char* open : {"/healthz", "/livez", "/readyz"}) {
    EXPECT_THAT(page.Ask(open), EndsWith("\n200")) << open;
  }
  EXPECT_THAT(page.Ask("/api/v1/overview"), EndsWith("\n401"));
  EXPECT_THAT(page.As("scrape", "/api/v1/overview"), EndsWith("\n401"));
  EXPECT_THAT(page.As("page", "/api/v1/overview"), EndsWith("\n200"));
  EXPECT_THAT(page.As("page", "/api/v1/jobs/1/stop", {"-X", "POST"}), EndsWith("\n403"));
  EXPECT_THAT(page.As("operator", "/api/v1/jobs/1/stop", {"-X", "POST"}), EndsWith("\n404"));
  EXPECT_THAT(page.Ask("/metrics"), EndsWith("\n401"));
  EXPECT_THAT(page.As("page", "/metrics"), EndsWith("\n401"));
  EXPECT_THAT(page.As("scrape", "/metrics"), EndsWith("\n200"));
  EXPECT_THAT(page.As("scrape", "/api/v1/prometheus/targets"), EndsWith("\n200"));
  EXPECT_THAT(page.Ask("/login", {"--data", "token=page"}),
              AllOf(HasSubstr("Set-Cookie: meshwright_page="), HasSubstr("; HttpOnly"),
                    HasSubstr("; SameSite=Strict"), HasSubstr("; Secure"), EndsWith("\n303")));
  EXPECT_THAT(page.Ask("/login", {"--data", "token=no"}), Not(HasSubstr("Set-Cookie")));
  // The same token does for commands, with the authority alone beside it.
  ASSERT_TRUE(WriteFileAtomic(dir_.File("ca.pem"), ReadFile(home() + "/ca/ca.pem").value()).ok());
  const std::string log = LogOf("far");
  const std::string before = "controller listens on 0.0.0.0:";
  const size_t at = log.find(before) + before.size();
  const std::string address = "127.0.0.1:" + log.substr(at, log.find(',', at) - at);
  const ProcessOutput status = Run({"--tls-dir", dir_.path(), "--token-file", dir_.File("operator"),
                                    "--address", address, "status"});
  EXPECT_EQ(status.exit.code, 0) << status.stderr_text;
  // A worker that others reach serves its metrics alike, and Prometheus is told so.
  Must({"cert", "issue", "worker", "w0", "--dir", home(), "--out", dir_.File("w0")});
  Start("w0", {"--tls-dir", dir_.File("w0"), "worker", "--name", "w0", "--address", address,
               "--device", "cpu", "--profile", "off", "--bind", "0.0.0.0", "--advertise",
               "127.0.0.1", "--scrape-token-file", dir_.File("scrape")});
  std::string listed;
  ASSERT_TRUE(Await([&] {
    listed = page.As("scrape", "/api/v1/prometheus/targets");
    return listed.find("127.0.0.1:") != std::string::npos;
  })) << LogOf("w0");
  EXPECT_THAT(listed, HasSubstr(R"("__scheme__":"https")"));
  const size_t target = listed.find("127.0.0.1:") + std::string("127.0.0.1:").size();
  const HttpsPage worker(home() + "/ca/ca.pem",
                         listed.substr(target, listed.find('"', target) - target),
                         "worker.meshwright");
  EXPECT_THAT(worker.Ask("/healthz"), EndsWith("\n200"));
  EXPECT_THAT(worker.Ask("/metrics"), EndsWith("\n401"));
  EXPECT_THAT(worker.As("scrape", "/metrics"),
              AllOf(HasSubstr("meshwright_build_info"), EndsWith("\n200")));
}

}  // namespace
}  // namespace meshwright::testing
