#include "security/tls_front.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/os_error.h"
#include "base/secret_file.h"
#include "base/unique_fd.h"
#include "security/callers.h"
#include "security/openssl_parts.h"
#include "security/tls_relay.h"

namespace meshwright::security {
namespace {

constexpr int kBacklog = 128;
constexpr int kAcceptsAtOnce = 32;
constexpr int64_t kNoDescriptorsMs = 100;

struct CertificatePem {
  std::string cert;
  std::string key;
  friend bool operator==(const CertificatePem&, const CertificatePem&) = default;
};

Result<CertificatePem> ReadPem(const ServerCertificate& files) {
  CertificatePem pem;
  MW_ASSIGN_OR_RETURN(pem.cert, ReadFile(files.cert_path));
  MW_ASSIGN_OR_RETURN(pem.key, ReadSecretFile(files.key_path));
  return pem;
}

// Errors: kInvalidArgument naming the file.
Result<Part<SSL_CTX>> ServerContext(const CertificatePem& pem, const ServerCertificate& files) {
  Part<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return Fail(OpenSslError("TLS"));
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  const Part<BIO> chain = ReadableBio(pem.cert);
  const Part<X509> own(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(raw, own.get()) != 1) {
    ERR_clear_error();
    return Fail(InvalidArgument(files.cert_path + " has no certificate in PEM"));
  }
  while (true) {
    const Part<X509> next(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    SSL_CTX_add1_chain_cert(raw, next.get());
  }
  const Part<EVP_PKEY> key = ReadKey(pem.key);
  if (key == nullptr) {
    return Fail(
        InvalidArgument(files.key_path + " has no private key in PEM (without a password)"));
  }
  const bool fits = SSL_CTX_use_PrivateKey(raw, key.get()) == 1;
  ERR_clear_error();
  if (fits) return context;
  return Fail(InvalidArgument(
      fmt::format("{} is not the key of the certificate in {}", files.key_path, files.cert_path)));
}

Stranger StrangerAt(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    bytes = &v4.sin_addr;
    port = v4.sin_port;
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    bytes = &v6.sin6_addr;
    port = v6.sin6_port;
  }
  const bool known = ::inet_ntop(address.ss_family, bytes, text.data(), text.size()) != nullptr;
  return {known ? text.data() : "", ntohs(port)};
}

}  // namespace

struct TlsFront::State {
  State(TlsFrontOptions wanted, const Clock& time) : options(std::move(wanted)), clock(time) {}

  const TlsFrontOptions options;
  const Clock& clock;
  UniqueFd listener;
  UniqueFd wake;
  int port = 0;
  std::atomic<bool> ends{false};
  Callers callers;

  // Of the thread.
  CertificatePem pem;
  Part<SSL_CTX> context;
  int64_t looked_ms = 0;
  int64_t accepts_from_ms = 0;
  std::string complaint;  // said already
  std::list<TlsRelay> relays;
  std::map<std::string, int64_t> of_address;
  Executor loop{"tls-front"};  // whose one task is Run()

  // New files count from now on; what is wrong with them is said once.
  void LookAtFiles(int64_t now_ms) {
    if (now_ms - looked_ms < options.look_ms) return;
    looked_ms = now_ms;
    Result<CertificatePem> found = ReadPem(options.certificate);
    if (found.has_value() && *found == pem) return;
    Result<Part<SSL_CTX>> made = found.and_then(
        [this](const CertificatePem& read) { return ServerContext(read, options.certificate); });
    const std::string wrong = made.has_value() ? "" : made.error().message();
    if (!wrong.empty() && wrong != complaint) {
      LogError(fmt::format("https: the certificate stays the old one: {}", wrong));
    }
    complaint = wrong;
    if (!made.has_value()) return;
    pem = *std::move(found);
    context = *std::move(made);
    LogInfo("https: a new certificate counts for new connections");
  }

  void Accept(int64_t now_ms) {
    LookAtFiles(now_ms);
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      sockaddr_storage from{};
      socklen_t bytes = sizeof(from);
      UniqueFd outer(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &bytes,
                               SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!outer.valid()) {
        // The next call would fail as this one: somebody has to close a descriptor first.
        if (errno == EMFILE || errno == ENFILE) accepts_from_ms = now_ms + kNoDescriptorsMs;
        return;
      }
      const Stranger stranger = StrangerAt(from);
      const std::string& address = stranger.address;
      int64_t& of_this = of_address[address];
      const bool room = static_cast<int64_t>(relays.size()) < options.connections &&
                        of_this < options.connections_of_address;
      Part<SSL> ssl(room ? SSL_new(context.get()) : nullptr);
      if (ssl == nullptr || SSL_set_fd(ssl.get(), outer.get()) != 1) {
        ERR_clear_error();
        if (of_this == 0) of_address.erase(address);
        continue;
      }
      ++of_this;
      relays.emplace_back(std::move(outer), stranger, std::move(ssl), options, callers, now_ms);
    }
  }

  void Drop(std::list<TlsRelay>::iterator relay) {
    const auto count = of_address.find(relay->address());
    MW_CHECK(count != of_address.end() && count->second > 0) << relay->address();
    if (--count->second == 0) of_address.erase(count);
    relays.erase(relay);
  }

  int TimeoutMs(int64_t now_ms) const {
    int64_t wait_ms = now_ms < accepts_from_ms ? kNoDescriptorsMs : 60'000;
    for (const TlsRelay& relay : relays) {
      wait_ms = std::min(wait_ms, std::max<int64_t>(0, relay.deadline_ms() - now_ms));
    }
    return static_cast<int>(wait_ms);
  }

  void Run() {
    // A write to a connection that is gone is an error here, and no signal.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    std::vector<pollfd> wanted;
    while (!ends.load()) {
      const bool accepts = clock.NowMs() >= accepts_from_ms;
      wanted.assign({{wake.get(), POLLIN, 0}, {accepts ? listener.get() : -1, POLLIN, 0}});
      for (const TlsRelay& relay : relays) {
        for (const pollfd& each : relay.Wanted()) wanted.push_back(each);
      }
      (void)::poll(wanted.data(), wanted.size(), TimeoutMs(clock.NowMs()));
      const int64_t now_ms = clock.NowMs();
      size_t at = 2;
      for (auto next = relays.begin(); next != relays.end(); at += 2) {
        const auto relay = next++;
        const short outer = wanted[at].revents;
        const short inner = wanted[at + 1].revents;
        if ((outer & (POLLERR | POLLHUP)) != 0) relay->Drop();
        if (!relay->over() && (outer != 0 || inner != 0 || now_ms >= relay->deadline_ms())) {
          relay->Go(now_ms);
        }
        if (relay->over()) Drop(relay);
      }
      if (wanted[1].revents != 0) Accept(now_ms);
    }
  }
};

TlsFront::TlsFront(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TlsFront>> TlsFront::Start(const TlsFrontOptions& options,
                                                  const Clock& clock) {
  MW_CHECK(options.behind > 0 && options.connections > 0 && options.connections_of_address > 0);
  auto state = std::make_unique<State>(options, clock);
  MW_ASSIGN_OR_RETURN(state->pem, ReadPem(options.certificate));
  MW_ASSIGN_OR_RETURN(state->context, ServerContext(state->pem, options.certificate));
  state->looked_ms = clock.NowMs();
  MW_ASSIGN_OR_RETURN(state->listener, ListenTcp(options.host, options.port, kBacklog));
  const int flags = ::fcntl(state->listener.get(), F_GETFL);
  ::fcntl(state->listener.get(), F_SETFL, flags | O_NONBLOCK);
  MW_ASSIGN_OR_RETURN(state->port, PortOf(state->listener));
  state->wake = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->wake.valid()) return Fail(OsError(errno, "eventfd"));
  (void)state->loop.Post([owner = state.get()] { owner->Run(); });
  return std::unique_ptr<TlsFront>(new TlsFront(std::move(state)));
}

TlsFront::~TlsFront() {
  state_->ends.store(true);
  const uint64_t one = 1;
  (void)!::write(state_->wake.get(), &one, sizeof(one));
  state_->loop.Stop();
}

int TlsFront::port() const { return state_->port; }

std::string TlsFront::CallerAt(int inner_port) const { return state_->callers.At(inner_port); }

}  // namespace meshwright::security
