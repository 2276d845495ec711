// TLS 1.3 as a machine of bytes: what came from the socket goes in, what is to be sent comes out.
// It knows no socket and no loop, so that the loop of a fabric, the listener and the blocking
// connections of doors drive the same one.
//
// Both ends show their certificates. The other's is believed when the cluster's authority signed
// it, it is of this time, and it is a worker's. Tickets and early data are off: every connection
// shows its certificate.
//
// Keys are changed after kBytesPerKey, long before what AES-GCM stands (RFC 8446, 5.5).
//
// Thread rule: a TlsSession is one thread's at a time; a TlsContext is thread-safe. Source: RFC
// 8446; OpenSSL 3.0, SSL_CTX_new(3), BIO_meth_new(3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "base/tls_identity.h"
#include "collective/cpu/wire.h"
#include "collective/tls.h"

struct ssl_ctx_st;
struct ssl_st;

namespace meshwright::collective {

enum class TlsEnd : uint8_t { kDials, kListens };

class TlsSession {
 public:
  static constexpr int64_t kBytesPerKey = int64_t{64} << 30;

  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Where the next bytes of the socket go, and how many came.
  std::span<uint8_t> InputSpace();
  void Commit(size_t bytes);
  // Bytes that wait for the socket; the caller takes them out by clear().
  Bytes& output() { return output_; }

  // True: the other end is believed. False: it needs more input. In either case there may be
  // output. Errors: kUnauthenticated saying what is wrong with the other's certificate, what it
  // says of ours, or that it does not speak TLS.
  Result<bool> Handshake();
  // How many bytes were read; 0: it needs more input. Errors: as Handshake(), for what the other
  // says late; kDataLoss: the bytes were changed on their way; kUnavailable: it has ended.
  Result<size_t> Read(void* into, size_t bytes);
  // The bytes as output. Errors: kInternal.
  Status Write(const void* from, size_t bytes);

  // Whose certificate the other end has shown: "worker 'w1'".
  const std::string& peer() const { return peer_; }
  // What came is of this session alone: nothing waits behind what was read.
  bool drained() const { return input_begin_ == input_end_; }
  // The first bytes that came, for telling who does not speak TLS.
  uint64_t first_word() const { return first_word_; }

 private:
  friend class TlsContext;
  friend struct TlsParts;
  TlsSession(ssl_st* ssl, TlsEnd end);
  Status Explain(int returned, const char* doing);

  ssl_st* const ssl_;
  const TlsEnd end_;
  Bytes input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  Bytes output_;
  uint64_t first_word_ = 0;
  size_t first_bytes_ = 0;
  std::string refusal_;  // why the other's certificate is not believed
  std::string peer_;
  int64_t bytes_with_key_ = 0;
};

class TlsContext final : public Tls {
 public:
  static Result<std::shared_ptr<TlsContext>> Make(const std::string& folder);
  // Errors: those of reading the identity anew.
  Result<std::unique_ptr<TlsSession>> NewSession(TlsEnd end);

 private:
  struct FreeContext {
    void operator()(ssl_ctx_st* context) const;
  };
  using ContextPtr = std::unique_ptr<ssl_ctx_st, FreeContext>;

  explicit TlsContext(std::string folder) : folder_(std::move(folder)) {}
  Status Reload() MW_REQUIRES(mutex_);
  static Result<ContextPtr> ContextOf(const TlsIdentity& identity);

  const std::string folder_;
  Mutex mutex_;
  TlsIdentity identity_ MW_GUARDED_BY(mutex_);
  std::string stamp_ MW_GUARDED_BY(mutex_);  // of the files as they were read
  ContextPtr context_ MW_GUARDED_BY(mutex_);
};

// What was given as a Tls; null stays null.
TlsContext* ContextOf(const std::shared_ptr<Tls>& tls);

}  // namespace meshwright::collective
