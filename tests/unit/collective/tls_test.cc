// The data plane by mutual TLS: who is believed, who is refused and told why, and that nobody
// hangs.
#include "collective/tls.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "base/unique_fd.h"
#include "collective/communicator.h"
#include "collective/cpu/tcp_tls.h"
#include "collective/cpu/wire.h"
#include "tests/unit/collective/test_authority.h"

namespace meshwright::collective {
namespace {

using ::testing::HasSubstr;

// ---- Sessions without sockets ----

struct Pair {
  std::unique_ptr<TlsSession> dials;
  std::unique_ptr<TlsSession> listens;
};

// What `from` has to say, as the other's input. False: nothing.
bool Carry(TlsSession& from, TlsSession& to) {
  Bytes bytes;
  bytes.swap(from.output());
  for (size_t at = 0; at < bytes.size();) {
    const std::span<uint8_t> space = to.InputSpace();
    const size_t part = std::min(space.size(), bytes.size() - at);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), part, space.begin());
    to.Commit(part);
    at += part;
    if (at < bytes.size()) break;  // the rest does not fit before it is read
  }
  return !bytes.empty();
}

Pair MakePair(const std::string& dials, const std::string& listens) {
  const auto one = TlsContext::Make(dials);
  const auto other = TlsContext::Make(listens);
  EXPECT_TRUE(one.has_value() && other.has_value());
  return {(*one)->NewSession(TlsEnd::kDials).value(),
          (*other)->NewSession(TlsEnd::kListens).value()};
}

// What each end says of the other.
struct Verdicts {
  Status of_dialer;
  Status of_listener;
};
Verdicts Meet(Pair& pair) {
  Verdicts verdicts;
  bool dialer_done = false;
  bool listener_done = false;
  for (int turns = 0; turns < 8; ++turns) {
    if (!dialer_done && verdicts.of_dialer.ok()) {
      const auto done = pair.dials->Handshake();
      dialer_done = done.value_or(false);
      if (!done.has_value()) verdicts.of_dialer = done.error();
    }
    Carry(*pair.dials, *pair.listens);
    if (!listener_done && verdicts.of_listener.ok()) {
      const auto done = pair.listens->Handshake();
      listener_done = done.value_or(false);
      if (!done.has_value()) verdicts.of_listener = done.error();
    }
    Carry(*pair.listens, *pair.dials);
  }
  // What the listener does not believe the dialer learns when it reads.
  char byte = 0;
  if (const auto read = pair.dials->Read(&byte, 1); verdicts.of_dialer.ok() && !read.has_value()) {
    verdicts.of_dialer = read.error();
  }
  return verdicts;
}

TEST(TlsSessions, WorkersOfAClusterBelieveEachOther) {
  const TestAuthority authority;
  Pair pair = MakePair(authority.WorkerFolder("w1"), authority.WorkerFolder("w2"));
  const Verdicts verdicts = Meet(pair);
  EXPECT_TRUE(verdicts.of_dialer.ok()) << verdicts.of_dialer;
  EXPECT_TRUE(verdicts.of_listener.ok()) << verdicts.of_listener;
  EXPECT_EQ(pair.dials->peer(), "worker 'w2'");
  EXPECT_EQ(pair.listens->peer(), "worker 'w1'");
  const std::string text(100'000, 'm');
  ASSERT_TRUE(pair.dials->Write(text.data(), text.size()).ok());
  EXPECT_EQ(std::string(pair.dials->output().begin(), pair.dials->output().end()).find("mmmm"),
            std::string::npos)
      << "in the clear";
  ASSERT_TRUE(Carry(*pair.dials, *pair.listens));
  std::string got(text.size(), ' ');
  EXPECT_EQ(pair.listens->Read(got.data(), got.size()).value(), text.size());
  EXPECT_EQ(got, text);
}

TEST(TlsSessions, WhoIsNoWorkerOfTheClusterIsRefusedAndToldWhy) {
  const TestAuthority authority;
  const TestAuthority other;
  struct Case {
    std::string folder;
    std::string says;
  };
  const std::vector<Case> cases = {
      {other.WorkerFolder("w1"), "certificate"},
      {authority.Folder("client", "meshwright://operator/w1"), "no worker's"},
      {authority.Folder("nobody", ""), "no worker's"},
      {authority.Folder("long", "meshwright://worker/"), "no worker's"},
      {authority.Folder("old", "meshwright://worker/w1", true), "expired"}};
  for (const Case& each : cases) {
    Pair as_dialer = MakePair(each.folder, authority.WorkerFolder("w2"));
    Verdicts verdicts = Meet(as_dialer);
    EXPECT_EQ(verdicts.of_listener.code(), StatusCode::kUnauthenticated) << each.folder;
    EXPECT_FALSE(verdicts.of_dialer.ok()) << each.folder;
    Pair as_listener = MakePair(authority.WorkerFolder("w2"), each.folder);
    verdicts = Meet(as_listener);
    EXPECT_EQ(verdicts.of_dialer.code(), StatusCode::kUnauthenticated) << each.folder;
    EXPECT_THAT(std::string(verdicts.of_dialer.message()), HasSubstr(each.says));
    EXPECT_EQ(verdicts.of_listener.code(), StatusCode::kUnauthenticated) << verdicts.of_listener;
    EXPECT_THAT(std::string(verdicts.of_listener.message()), HasSubstr("refuses this process's"));
  }
}

TEST(TlsSessions, BytesThatWereChangedAreNotRead) {
  const TestAuthority authority;
  Pair pair = MakePair(authority.WorkerFolder("w1"), authority.WorkerFolder("w2"));
  ASSERT_TRUE(Meet(pair).of_dialer.ok());
  ASSERT_TRUE(pair.dials->Write("hello", 5).ok());
  pair.dials->output().back() ^= 1;
  Carry(*pair.dials, *pair.listens);
  char got[5];
  EXPECT_EQ(pair.listens->Read(got, 5).error().code(), StatusCode::kDataLoss);
}

// The files are replaced while the process lives: what was made stays, what comes is by the new.
TEST(TlsSessions, ACertificateThatIsReplacedIsShownFromThenOn) {
  const TestAuthority authority;
  const std::string folder = authority.WorkerFolder("w1");
  const auto context = TlsContext::Make(folder).value();
  const auto peer = TlsContext::Make(authority.WorkerFolder("w2")).value();
  const auto shown = [&] {
    Pair pair = {context->NewSession(TlsEnd::kDials).value(),
                 peer->NewSession(TlsEnd::kListens).value()};
    EXPECT_TRUE(Meet(pair).of_listener.ok());
    return pair.listens->peer();
  };
  EXPECT_EQ(shown(), "worker 'w1'");
  authority.Write(folder, "meshwright://worker/w1b");
  EXPECT_EQ(shown(), "worker 'w1b'");
  ASSERT_TRUE(WriteFileAtomic(folder + "/cert.pem", "half of a fi").ok());
  EXPECT_EQ(shown(), "worker 'w1b'") << "what was read before still holds";
}

TEST(TlsSessions, AFolderThatIsNoIdentityIsNamed) {
  const TestAuthority authority;
  const std::string folder = authority.WorkerFolder("w1");
  ASSERT_TRUE(WriteFileAtomic(folder + "/ca.pem", "nothing").ok());
  const auto made = MakeTls(folder);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()), HasSubstr("ca.pem"));
  EXPECT_FALSE(MakeTls(folder + "/none").has_value());
}

// ---- Fabrics ----

constexpr int64_t kTlsPatienceMs = 20'000;

FabricOptions TwoRanks(const std::string& first, const std::string& second, int local) {
  FabricOptions options;
  options.members = {{"w1", first, "h1", 1}, {"w2", second, "h2", 2}};
  options.local_ranks = {local};
  options.cluster_id = "c";
  options.generation = MeshGeneration(3);
  options.secret = "secret";
  options.transport = Transport::kTcp;
  // Who listens learns from nobody that the other was refused.
  options.connect_timeout_ms = local == 0 ? 4'000 : kTlsPatienceMs;
  options.operation_timeout_ms = kTlsPatienceMs;
  return options;
}

struct Ends {
  Status dialer;
  Status listener;
};
// Rank 1 (w2) dials rank 0 (w1); each by a Tls of its own, or none.
Ends ConnectTwo(const std::shared_ptr<Tls>& dials, const std::shared_ptr<Tls>& listens) {
  const auto first = MakeListener("127.0.0.1", 0, listens).value();
  const auto second = MakeListener("127.0.0.1", 0, dials).value();
  const auto address = [](const Listener& of) { return fmt::format("127.0.0.1:{}", of.port()); };
  Ends ends;
  const auto make = [&](int rank, const std::shared_ptr<Listener>& listener) {
    auto fabric =
        MakeCpuFabric(TwoRanks(address(*first), address(*second), rank), listener).value();
    (void)fabric->MakeGroup("world", {0, 1}).value();
    return fabric;
  };
  // A refusal is told to the fabrics that are there: the one that listens is, before anybody dials.
  const auto listening = make(0, first);
  const auto dialing = make(1, second);
  std::thread other([&] { ends.listener = listening->Connect(); });
  ends.dialer = dialing->Connect();
  other.join();
  return ends;
}

TEST(TlsFabrics, StrangersAreRefusedByNameAndNobodyHangs) {
  const TestAuthority authority;
  const TestAuthority other;
  const auto worker = MakeTls(authority.WorkerFolder("w1")).value();
  const auto second = MakeTls(authority.WorkerFolder("w2")).value();
  const auto stranger = MakeTls(other.WorkerFolder("w1")).value();
  const auto client = MakeTls(authority.Folder("c", "meshwright://operator/c")).value();
  const Ends sound = ConnectTwo(worker, second);
  EXPECT_TRUE(sound.dialer.ok() && sound.listener.ok()) << sound.dialer << sound.listener;
  struct Case {
    std::shared_ptr<Tls> dials;
    std::shared_ptr<Tls> listens;
    std::string dialer_says;
    // Where it is the other end that does not believe, this one may only hear that it went.
    bool listener_knows = false;
  };
  const std::vector<Case> cases = {{stranger, worker, "not believed"},
                                   {worker, stranger, "not believed"},
                                   {client, worker, "refuses this process's", true},
                                   {worker, client, "no worker's"},
                                   {nullptr, worker, "takes TLS only", true},
                                   {worker, nullptr, "does not speak TLS"}};
  std::vector<Ends> ends(cases.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] { ends[i] = ConnectTwo(cases[i].dials, cases[i].listens); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string dialer(ends[i].dialer.message());
    EXPECT_EQ(ends[i].dialer.code(), StatusCode::kUnauthenticated) << ends[i].dialer;
    EXPECT_THAT(dialer, HasSubstr(cases[i].dialer_says));
    EXPECT_THAT(dialer, HasSubstr("rank 0 (w1)"));
    const std::string listener(ends[i].listener.message());
    EXPECT_EQ(ends[i].listener.code(), StatusCode::kDeadlineExceeded) << ends[i].listener;
    EXPECT_THAT(listener, HasSubstr("rank 1 (w2)"));
    if (cases[i].listener_knows) {
      EXPECT_THAT(listener, HasSubstr("a connection was refused here"));
    }
  }
}

// Somebody who shows no certificate, says nonsense, or nothing at all.
TEST(TlsFabrics, NonsenseAtThePortHoldsNobodyUp) {
  const TestAuthority authority;
  const auto tls = MakeTls(authority.WorkerFolder("w1")).value();
  const auto listener = MakeListener("127.0.0.1", 0, tls).value();
  const auto dial = [&] {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(listener->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const timeval wait{20, 0};
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    return fd;
  };
  const auto answer = [](const UniqueFd& fd) {
    std::string all;
    char piece[512];
    for (ssize_t got = 0; (got = ::recv(fd.get(), piece, sizeof piece, 0)) > 0;) {
      all.append(piece, static_cast<size_t>(got));
    }
    return all;
  };
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(dial());
  const Bytes hello = EncodeHello({"c", "secret", 3, 1, 2});
  const UniqueFd plain = dial();
  ASSERT_EQ(::send(plain.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  EXPECT_THAT(answer(plain), HasSubstr("takes TLS only"));
  const UniqueFd http = dial();
  ASSERT_GT(::send(http.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  (void)answer(http);
  const UniqueFd zeros = dial();
  const std::string nothing(4096, '\0');
  ASSERT_GT(::send(zeros.get(), nothing.data(), nothing.size(), MSG_NOSIGNAL), 0);
  (void)answer(zeros);
  const Ends sound = ConnectTwo(tls, MakeTls(authority.WorkerFolder("w2")).value());
  EXPECT_TRUE(sound.dialer.ok()) << sound.dialer;
}

}  // namespace
}  // namespace meshwright::collective
