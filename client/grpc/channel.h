// How clients reach the controller: address, token, connection.
//
// Thread rule: any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "client/client.h"

namespace meshwright::client {

// As Client::Options says.
std::string AddressOf(const Client::Options& options);
std::string TokenOf(const Client::Options& options);
// Empty: in the clear.
std::string TlsDirOf(const Client::Options& options);
void AddToken(grpc::ClientContext& context, const std::string& token);
// With an identity that cannot be read it never connects: Client::Connect says why.
std::shared_ptr<grpc::Channel> MakeChannel(const Client::Options& options);

}  // namespace meshwright::client
