#include "client/grpc/channel.h"

#include <cstdlib>

#include "proto/messages.h"
#include "security/grpc/credentials.h"
#include "security/places.h"

namespace meshwright::client {
namespace {

constexpr char kDefaultAddress[] = "127.0.0.1:7700";

// A session tries again soon after its connection broke; by default the channel waits for up to two
// minutes.
void ConnectAgainSoon(grpc::ChannelArguments& args) {
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
}

}  // namespace

std::string AddressOf(const Client::Options& options) {
  if (!options.address.empty()) return options.address;
  const char* value = std::getenv("MESHWRIGHT_ADDRESS");
  return value != nullptr && *value != '\0' ? value : kDefaultAddress;
}

std::string TokenOf(const Client::Options& options) {
  if (!options.token.empty()) return options.token;
  const char* value = std::getenv("MESHWRIGHT_TOKEN");
  return value != nullptr ? value : "";
}

std::string TlsDirOf(const Client::Options& options) {
  const std::string address = AddressOf(options);
  if (address.rfind("unix:", 0) == 0) return "";
  if (!options.tls_dir.empty()) return options.tls_dir;
  if (security::IsLoopback(address)) return "";
  const char* value = std::getenv("MESHWRIGHT_TLS_DIR");
  return value != nullptr ? value : "";
}

void AddToken(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
}

std::shared_ptr<grpc::Channel> MakeChannel(const Client::Options& options) {
  grpc::ChannelArguments args;
  // A frozen host or a cut network closes nothing: without pings a watcher would wait for ever.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_ms / 2));
  // By default the third ping would wait for data of ours.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  ConnectAgainSoon(args);
  args.SetMaxReceiveMessageSize(static_cast<int>(proto::kMaxMessageBytes));
  const std::string tls_dir = TlsDirOf(options);
  if (!tls_dir.empty()) security::WantController(args);
  const auto credentials =
      security::ChannelCredentialsOf(tls_dir).value_or(security::ChannelCredentialsBy("none"));
  return grpc::CreateCustomChannel(AddressOf(options), credentials, args);
}

}  // namespace meshwright::client
