// The only converters between the wire and our types. Included by proto/ and */grpc/ only.
//
// Encode cannot fail. Decode is safe on any input: kInvalidArgument names the field.
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/job.h"
#include "proto/client_messages.h"
#include "proto/meshwright.pb.h"
#include "proto/messages.h"

namespace meshwright::proto {

v1::Up Encode(const UpMessage& message);
Result<UpMessage> Decode(const v1::Up& wire);
v1::Heartbeat Encode(const Heartbeat& heartbeat);
Heartbeat Decode(const v1::Heartbeat& wire);

v1::Down Encode(const DownMessage& message);
Result<DownMessage> Decode(const v1::Down& wire);

v1::ClientUp Encode(const ClientUp& message);
Result<ClientUp> Decode(const v1::ClientUp& wire);

v1::ClientDown Encode(const ClientDown& message);
Result<ClientDown> Decode(const v1::ClientDown& wire);

v1::LaunchDone Encode(const LaunchDone& done);
Result<LaunchDone> Decode(const v1::LaunchDone& wire);

v1::StateSaved Encode(const StateSaved& saved);
StateSaved Decode(const v1::StateSaved& wire);

v1::CheckpointCommitted Encode(const CheckpointCommitted& committed);
CheckpointCommitted Decode(const v1::CheckpointCommitted& wire);

v1::ResumeMesh Encode(const ResumeMesh& resume);
Result<ResumeMesh> Decode(const v1::ResumeMesh& wire);

v1::Register Encode(const Register& info);
Register Decode(const v1::Register& wire);

v1::NamedTensor Encode(const NamedTensor& tensor);
Result<NamedTensor> Decode(const v1::NamedTensor& wire);

// Of a message that asks for tensors.
template <typename Wire>
Fetch FetchOf(const Wire& wire) {
  if (!wire.fetch()) return Fetch::kNothing;
  return wire.fetch_largest() ? Fetch::kLargest : Fetch::kAll;
}

v1::TensorTile Encode(const TensorTile& tile);
Result<TensorTile> Decode(const v1::TensorTile& wire);

v1::RuntimeError Encode(const RuntimeError& error);
RuntimeError Decode(const v1::RuntimeError& wire);

v1::BlobRef Encode(const ir::BlobRef& blob);
// Errors: a hash that is neither empty nor 64 hex digits.
Result<ir::BlobRef> Decode(const v1::BlobRef& wire);

v1::FileRef Encode(const ir::FileRef& file);
v1::FolderRef Encode(const ir::FolderRef& folder);
ir::FolderRef Decode(const v1::FolderRef& wire);
// Errors: as of a BlobRef.
Result<ir::FileRef> Decode(const v1::FileRef& wire);

v1::DataRoot Encode(const ir::DataRoot& root);
ir::DataRoot Decode(const v1::DataRoot& wire);

v1::DataSpec Encode(const ir::DataSpec& data);
// Errors: those of its files; an unknown element type.
Result<ir::DataSpec> Decode(const v1::DataSpec& wire);

// The graph travels as text; errors of its parser carry line numbers.
v1::JobRequest Encode(const ir::JobRequest& job);
Result<ir::JobRequest> Decode(const v1::JobRequest& wire);

v1::JobInfo Encode(const JobInfo& info);
JobInfo Decode(const v1::JobInfo& wire);

v1::StepMetrics Encode(const StepMetrics& metrics);
StepMetrics Decode(const v1::StepMetrics& wire);

v1::JobUpdate Encode(const JobUpdate& update);
JobUpdate Decode(const v1::JobUpdate& wire);

v1::WorkerInfo Encode(const WorkerInfo& info);
WorkerInfo Decode(const v1::WorkerInfo& wire);

// The head of a tile: every field but the data.
v1::TileChunk EncodeTileHead(const WeightTile& tile);
Result<WeightTile> DecodeTileHead(const v1::TileChunk& wire);

}  // namespace meshwright::proto
