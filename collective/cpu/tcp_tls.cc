#include "collective/cpu/tcp_tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace meshwright::collective {

// What OpenSSL's callbacks may touch of a session.
struct TlsParts {
  static int ReadInput(BIO* bio, char* into, int bytes) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const size_t ready = session.input_end_ - session.input_begin_;
    if (ready == 0 || bytes <= 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const size_t taken = std::min(ready, static_cast<size_t>(bytes));
    std::memcpy(into, session.input_.data() + session.input_begin_, taken);
    session.input_begin_ += taken;
    return static_cast<int>(taken);
  }
  static int WriteOutput(BIO* bio, const char* from, int bytes) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    session.output_.insert(session.output_.end(), from, from + std::max(bytes, 0));
    return bytes;
  }
  static long Control(BIO* /*bio*/, int what, long /*number*/, void* /*pointer*/) {
    return what == BIO_CTRL_FLUSH ? 1 : 0;
  }
  static void Refuse(SSL* ssl, const std::string& why) {
    static_cast<TlsSession*>(SSL_get_app_data(ssl))->refusal_ = why;
  }
};

namespace {

constexpr size_t kInputBytes = 128 << 10;  // of the socket at once
constexpr std::string_view kWorkerScheme = "meshwright://worker/";

const BIO_METHOD* BytesMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "bytes");
    MW_CHECK(made != nullptr) << "no memory for a BIO";
    BIO_meth_set_read(made, TlsParts::ReadInput);
    BIO_meth_set_write(made, TlsParts::WriteOutput);
    BIO_meth_set_ctrl(made, TlsParts::Control);
    return made;
  }();
  return method;
}

// The first of the queue, which is empty then.
std::string FirstError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

// All the URIs of a certificate, for people and to find the worker's among them.
std::string UrisOf(X509* certificate) {
  std::string found;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    if (!found.empty()) found += ' ';
    found.append(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                 static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  return found;
}

// "w1" of "meshwright://worker/w1"; "": it is no worker's.
std::string WorkerOf(X509* certificate) {
  const std::string uris = UrisOf(certificate);
  if (!uris.starts_with(kWorkerScheme)) return "";
  std::string name = uris.substr(kWorkerScheme.size());
  const bool plain =
      !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= '!' && c <= '~') && c != '/' && c != '\'';
      });
  return plain ? name : "";
}

// Beyond what OpenSSL has checked: the other end's own certificate is a worker's.
int CheckWorker(int sound, X509_STORE_CTX* store) {
  auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* const certificate = X509_STORE_CTX_get_current_cert(store);
  if (sound != 1) {
    const int code = X509_STORE_CTX_get_error(store);
    TlsParts::Refuse(ssl, fmt::format("its certificate is not believed: {}",
                                      X509_verify_cert_error_string(code)));
    return 0;
  }
  if (X509_STORE_CTX_get_error_depth(store) == 0 && WorkerOf(certificate).empty()) {
    TlsParts::Refuse(ssl, fmt::format("its certificate is no worker's ({}); issue it one of a "
                                      "worker's role",
                                      UrisOf(certificate).substr(0, 200)));
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  }
  return 1;
}

BIO* PemBio(const std::string& pem) {
  return BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
}

bool TrustAuthority(SSL_CTX* context, const std::string& pem) {
  BIO* const bio = PemBio(pem);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int added = 0;
  while (X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
    added += X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  BIO_free_all(bio);
  ERR_clear_error();  // the end of the file is one
  return added > 0;
}

bool UseCertificate(SSL_CTX* context, const TlsIdentity& identity) {
  BIO* const bio = PemBio(identity.cert_pem);
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  bool sound = certificate != nullptr && SSL_CTX_use_certificate(context, certificate) == 1;
  X509_free(certificate);
  while (sound) {
    certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    if (certificate == nullptr) break;
    sound = SSL_CTX_add0_chain_cert(context, certificate) == 1;
  }
  BIO_free_all(bio);
  ERR_clear_error();
  BIO* const key_bio = PemBio(identity.key_pem);
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(key_bio, nullptr, nullptr, nullptr);
  sound = sound && key != nullptr && SSL_CTX_use_PrivateKey(context, key) == 1 &&
          SSL_CTX_check_private_key(context) == 1;
  EVP_PKEY_free(key);
  BIO_free_all(key_bio);
  return sound;
}

// Which files were read: a folder may be a link that is turned to another one.
std::string StampOf(const std::string& folder) {
  std::string stamp;
  for (const char* name : {"ca.pem", "cert.pem", "key.pem"}) {
    struct stat found {};
    if (::stat((folder + "/" + name).c_str(), &found) != 0) return "";
    stamp += fmt::format("{}:{}:{}.{} ", found.st_dev, found.st_ino, found.st_mtim.tv_sec,
                         found.st_mtim.tv_nsec);
  }
  return stamp;
}

}  // namespace

// ---- A session ----------------------------------------------------------------------------------

TlsSession::TlsSession(ssl_st* ssl, TlsEnd end) : ssl_(ssl), end_(end), input_(kInputBytes) {
  BIO* const bio = BIO_new(BytesMethod());
  MW_CHECK(bio != nullptr) << "no memory for a BIO";
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (end_ == TlsEnd::kDials) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

std::span<uint8_t> TlsSession::InputSpace() {
  if (input_begin_ == input_end_) {
    input_begin_ = input_end_ = 0;
  } else if (input_begin_ > 0) {
    std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
  }
  MW_CHECK(input_end_ < input_.size()) << "a record that does not end";
  return {input_.data() + input_end_, input_.size() - input_end_};
}

void TlsSession::Commit(size_t bytes) {
  for (size_t i = 0; i < bytes && first_bytes_ < sizeof first_word_; ++i, ++first_bytes_) {
    first_word_ |= uint64_t{input_[input_end_ + i]} << (8 * first_bytes_);
  }
  input_end_ += bytes;
}

Status TlsSession::Explain(int returned, const char* doing) {
  const int error = SSL_get_error(ssl_, returned);
  if (!refusal_.empty()) {
    ERR_clear_error();
    return Unauthenticated(refusal_);
  }
  if (error == SSL_ERROR_ZERO_RETURN) return Unavailable("the other end has closed it");
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  const std::string text = FirstError();
  if (first_word_ == kHelloMagic || first_word_ == kReplyMagic ||
      reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
    return Unauthenticated(
        "it does not speak TLS: every worker of a cluster needs a certificate, or none of them");
  }
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return Unauthenticated("it has shown no certificate; issue it one of a worker's role");
  }
  // Alerts of the other end: what it says of us.
  if (reason >= SSL_AD_REASON_OFFSET) {
    return Unauthenticated(fmt::format("it refuses this process's certificate: {}", text));
  }
  if (reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
    return DataLoss("bytes were changed on their way");
  }
  return SSL_is_init_finished(ssl_) != 0 ? DataLoss(fmt::format("{}: {}", doing, text))
                                         : Unauthenticated(fmt::format("{}: {}", doing, text));
}

Result<bool> TlsSession::Handshake() {
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) {
    if (SSL_get_error(ssl_, done) == SSL_ERROR_WANT_READ) return false;
    return Fail(Explain(done, "handshake"));
  }
  X509* const certificate = SSL_get0_peer_certificate(ssl_);
  if (certificate == nullptr) return Fail(Unauthenticated("it has shown no certificate"));
  peer_ = fmt::format("worker '{}'", WorkerOf(certificate));
  return true;
}

Result<size_t> TlsSession::Read(void* into, size_t bytes) {
  ERR_clear_error();
  size_t all = 0;
  while (all < bytes) {
    size_t got = 0;
    const int read = SSL_read_ex(ssl_, static_cast<char*>(into) + all, bytes - all, &got);
    if (read == 1) {
      all += got;
      continue;
    }
    // What was read is given first: the error comes again.
    if (all > 0 || SSL_get_error(ssl_, read) == SSL_ERROR_WANT_READ) break;
    return Fail(Explain(read, "reading"));
  }
  return all;
}

Status TlsSession::Write(const void* from, size_t bytes) {
  ERR_clear_error();
  bytes_with_key_ += static_cast<int64_t>(bytes);
  if (bytes_with_key_ > kBytesPerKey) {
    bytes_with_key_ = 0;
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      return Internal(fmt::format("cannot change the key: {}", FirstError()));
    }
  }
  size_t put = 0;
  if (bytes == 0 || SSL_write_ex(ssl_, from, bytes, &put) == 1) return OkStatus();
  return Internal(fmt::format("cannot encrypt: {}", FirstError()));
}

// ---- The context --------------------------------------------------------------------------------

void TlsContext::FreeContext::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

Result<TlsContext::ContextPtr> TlsContext::ContextOf(const TlsIdentity& identity) {
  ContextPtr context(SSL_CTX_new(TLS_method()));
  MW_CHECK(context != nullptr) << "no memory for TLS";
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, CheckWorker);
  // A worker's certificate need not be a server's: what counts is whose it is.
  SSL_CTX_set_purpose(raw, X509_PURPOSE_SSL_CLIENT);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(raw, SSL_MODE_AUTO_RETRY);
  // Where processors have AES this is the fastest, and as strong as the rest of the chain.
  SSL_CTX_set_ciphersuites(
      raw, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  if (!TrustAuthority(raw, identity.ca_pem)) {
    return Fail(InvalidArgument("ca.pem has no certificate of an authority"));
  }
  if (!UseCertificate(raw, identity)) {
    return Fail(InvalidArgument(
        fmt::format("OpenSSL does not take cert.pem and key.pem: {}", FirstError())));
  }
  ERR_clear_error();
  return context;
}

Status TlsContext::Reload() {
  std::string stamp = StampOf(folder_);
  if (context_ != nullptr && stamp == stamp_) return OkStatus();
  MW_ASSIGN_OR_RETURN(TlsIdentity identity, LoadTlsIdentity(folder_));
  if (context_ == nullptr || identity != identity_) {
    Result<ContextPtr> context = ContextOf(identity);
    if (!context.has_value()) return context.error().WithContext(folder_);
    context_ = std::move(*context);
    identity_ = std::move(identity);
  }
  stamp_ = std::move(stamp);
  return OkStatus();
}

Result<std::shared_ptr<TlsContext>> TlsContext::Make(const std::string& folder) {
  std::shared_ptr<TlsContext> made(new TlsContext(folder));
  const MutexLock lock(made->mutex_);
  MW_TRY(made->Reload());
  return made;
}

Result<std::unique_ptr<TlsSession>> TlsContext::NewSession(TlsEnd end) {
  const MutexLock lock(mutex_);
  // A half that is being replaced: what was read before is still an identity.
  const Status fresh = Reload();
  if (context_ == nullptr) return Fail(fresh);
  SSL* const ssl = SSL_new(context_.get());
  MW_CHECK(ssl != nullptr) << "no memory for TLS";
  return std::unique_ptr<TlsSession>(new TlsSession(ssl, end));
}

TlsContext* ContextOf(const std::shared_ptr<Tls>& tls) {
  return dynamic_cast<TlsContext*>(tls.get());
}

Result<std::shared_ptr<Tls>> MakeTls(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(std::shared_ptr<Tls> made, TlsContext::Make(folder));
  return made;
}

}  // namespace meshwright::collective
