// The data listener of a process: authenticates connections and routes each to the fabric it is
// meant for.
//
// With TLS the other end has to be a worker of the cluster before it is listened to; whoever has
// the fabric goes on with a session of its own (TcpStream).
//
// A connection names (cluster, generation, process). When that fabric is not there yet, the
// connection is held until it registers, at most kHoldMs; when a newer generation of the cluster
// registered here, it is refused. Anything that does not parse is closed. Before authentication a
// connection can cost kHandshakeMs and kMaxHandshakeBytes, and there are at most kMaxHandshakes +
// kMaxHeld of them.
//
// Thread rule: thread-safe; socket work on the own loop. Ownership: fabrics share it.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "base/mutex.h"
#include "collective/cpu/fabric_port.h"
#include "collective/cpu/tcp_greeting.h"
#include "collective/cpu/tcp_loop.h"
#include "collective/cpu/tcp_socket.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

class TcpListener final : public FabricListener {
 public:
  static constexpr int64_t kHandshakeMs = 5'000;
  static constexpr int64_t kHoldMs = 30'000;
  static constexpr size_t kMaxHandshakes = 64;
  static constexpr size_t kMaxHeld = 256;

  static Result<std::shared_ptr<TcpListener>> Make(const std::string& bind_address, int port,
                                                   std::shared_ptr<Tls> tls);
  ~TcpListener() override;
  int port() const override { return port_; }
  std::shared_ptr<Tls> tls() const override { return tls_; }

  Status Register(FabricPort* fabric) override;
  void Unregister(FabricPort* fabric) override;

 private:
  // (cluster, generation, process)
  using Key = std::tuple<std::string, uint64_t, uint64_t>;
  using PendingPtr = std::shared_ptr<TcpGreeting>;

  explicit TcpListener(std::shared_ptr<Tls> tls);
  Status Bind(const std::string& bind_address, int port);

  // On the loop.
  void AwaitConnection();
  void AcceptAll();
  void StartHandshake(UniqueFd fd);
  void OnHeard(const PendingPtr& pending, const Status& heard);
  void Route(const PendingPtr& pending);
  Status Dispatch(const PendingPtr& pending, bool* hold);
  void Hold(const PendingPtr& pending);
  void RouteHeld();
  void Refuse(const PendingPtr& pending, const Status& why);

  const std::shared_ptr<Tls> tls_;
  TcpLoop loop_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  int port_ = 0;
  std::set<PendingPtr> handshakes_;  // loop only
  std::set<PendingPtr> held_;        // loop only

  Mutex mutex_;  // taken before any lock of a fabric
  std::map<Key, FabricPort*> fabrics_ MW_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> newest_generation_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::collective
