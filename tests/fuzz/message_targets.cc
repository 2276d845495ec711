// Messages of gRPC and of executors through the converters: whatever parses as protobuf is decoded
// or refused, and what was decoded can be encoded.
#include <google/protobuf/stubs/logging.h>

#include "proto/convert.h"
#include "proto/convert_job_file.h"
#include "proto/convert_records.h"
#include "proto/convert_snapshots.h"
#include "proto/executor.pb.h"
#include "proto/frames.h"
#include "proto/job_codec.h"
#include "proto/meshwright.pb.h"
#include "proto/resolve.pb.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/random_message.h"
#include "tests/fuzz/small_job.h"
#include "tests/fuzz/target.h"
#include "worker/executor_messages.h"

namespace meshwright::fuzz {
namespace {

// Enough that every field, and every case of the envelope, comes.
template <typename Wire>
Seeds RandomSeeds(int count = 96) {
  Seeds seeds;
  Random random(count);
  for (int i = 0; i < count; ++i) {
    Wire wire;
    FillMessage(wire, random);
    seeds.push_back(wire.SerializeAsString());
  }
  return seeds;
}

// Decode answers with a message, or with a Result of one.
template <typename T>
void Use(const T& message) {
  (void)proto::Encode(message).ByteSizeLong();
}
template <typename T>
void Use(const Result<T>& message) {
  if (message.has_value()) Use(*message);
}

template <typename Wire>
Target Converted(std::string name, std::string of, Seeds (*seeds)() = nullptr) {
  return {std::move(name), "proto::Decode(" + of + ")",
          [seeds] {
            Seeds all = RandomSeeds<Wire>();
            if (seeds != nullptr) {
              for (std::string& seed : seeds()) all.push_back(std::move(seed));
            }
            return all;
          },
          [](std::string_view input) {
            Wire wire;
            if (!wire.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
            Use(proto::Decode(wire));
          },
          2'000};
}

void RunJobCodec(std::string_view input) {
  const auto job = proto::DecodeJob(input);
  if (!job.has_value()) return;
  (void)ir::ValidateJob(*job);
  const std::string once = proto::EncodeJob(*job);
  const auto again = proto::DecodeJob(once);
  MW_CHECK(again.has_value() && proto::EncodeJob(*again) == once) << "another job";
}

void RunResolve(std::string_view input) {
  v1::ResolveRequest wire;
  if (!wire.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  (void)proto::Decode(wire);
}

void RunRecords(std::string_view input) {
  v1::StepRecord wire;
  if (!wire.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const auto record = proto::Get(wire);
  if (!record.has_value()) return;
  v1::StepRecord again;
  proto::Put(*record, again);
}

// Pieces of a large message, as they come.
void RunPieces(std::string_view input) {
  proto::FrameJoiner joiner;
  while (input.size() > 1) {
    const size_t length = std::min<size_t>(input.size() - 1, static_cast<uint8_t>(input[0]));
    v1::Up piece;
    if (piece.ParseFromArray(input.data() + 1, static_cast<int>(length))) {
      const auto whole = proto::JoinPieces(joiner, piece);
      if (!whole.has_value()) return;
      if (*whole) (void)proto::Decode(**whole);
    }
    input.remove_prefix(1 + length);
  }
}

Seeds SeedsOfPieces() {
  Seeds seeds;
  v1::Up whole;
  Random random(3);
  FillMessage(whole, random);
  std::string pieces;
  const std::string bytes = whole.SerializeAsString();
  for (size_t at = 0; at < bytes.size(); at += 64) {
    v1::Up piece;
    v1::Frame& frame = *piece.mutable_piece();
    FillMessage(frame, random);
    const std::string said = piece.SerializeAsString();
    pieces += static_cast<char>(std::min<size_t>(said.size(), 255));
    pieces += said.substr(0, 255);
  }
  seeds.push_back(pieces);
  return seeds;
}

Seeds SeedsOfExecutors() {
  Seeds seeds = RandomSeeds<v1::ToExecutor>();
  for (std::string& seed : RandomSeeds<v1::FromExecutor>()) seeds.push_back(std::move(seed));
  return seeds;
}

void RunExecutors(std::string_view input) {
  const auto down = worker::DecodeToExecutor(input);
  if (down.has_value()) (void)worker::Encode(*down);
  const auto up = worker::DecodeFromExecutor(input);
  if (up.has_value()) (void)worker::Encode(*up);
}

Seeds SeedsOfJob() { return {proto::EncodeJob(SmallJob())}; }

}  // namespace

std::vector<Target> MessageTargets() {
  // Protobuf says of every text that is no UTF-8 that it is none: a line costs more than a case.
  google::protobuf::SetLogHandler(nullptr);
  return {
      Converted<v1::Up>("up", "v1::Up"),
      Converted<v1::Down>("down", "v1::Down"),
      Converted<v1::ClientUp>("client-up", "v1::ClientUp"),
      Converted<v1::ClientDown>("client-down", "v1::ClientDown"),
      Converted<v1::Register>("register", "v1::Register"),
      Converted<v1::JobRequest>("job-request", "v1::JobRequest", SeedsOfJob),
      Converted<v1::DataSpec>("data-spec", "v1::DataSpec"),
      Converted<v1::ResumeMesh>("resume-mesh", "v1::ResumeMesh"),
      Converted<v1::JobUpdate>("job-update", "v1::JobUpdate"),
      Converted<v1::WorkerInfo>("worker-info", "v1::WorkerInfo"),
      {"job-codec", "proto::DecodeJob, ir::ValidateJob", SeedsOfJob, RunJobCodec, 400},
      {"resolve-request", "proto::Decode(v1::ResolveRequest)",
       [] { return RandomSeeds<v1::ResolveRequest>(); }, RunResolve},
      {"step-record", "proto::Get(v1::StepRecord)", [] { return RandomSeeds<v1::StepRecord>(); },
       RunRecords},
      {"message-pieces", "proto::JoinPieces", SeedsOfPieces, RunPieces},
      {"executor-messages", "worker::DecodeToExecutor, DecodeFromExecutor", SeedsOfExecutors,
       RunExecutors},
  };
}

}  // namespace meshwright::fuzz
