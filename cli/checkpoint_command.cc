// checkpoint ls, inspect, verify, diff, export, rm.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/table.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "cli/checkpoint_place.h"
#include "cli/commands.h"
#include "cli/model_folder.h"
#include "cli/output.h"
#include "ir/element_value.h"
#include "proto/job_codec.h"

namespace meshwright::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::Reader;
using checkpoint::StoredTensor;
using Json = nlohmann::ordered_json;

std::string TimeText(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json SummaryJson(const Manifest& manifest, const std::string& path) {
  return {{"step", manifest.step},
          {"path", path},
          {"job", manifest.job_id},
          {"name", manifest.job_name},
          {"saved_unix_ms", manifest.saved_unix_ms},
          {"cause", manifest.cause},
          {"layout", manifest.layout},
          {"tensors", manifest.tensors.size()},
          {"bytes", checkpoint::StateBytes(manifest)}};
}

Result<int> List(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const CheckpointPlace place, FindCheckpoints(args.place, global));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsOf(place));
  std::vector<std::vector<std::string>> rows;
  std::optional<size_t> best;  // row of the newest that was
  for (const int64_t step : steps) {
    CheckpointPlace one = place;
    one.step = step;
    const std::string path = one.path();
    const auto reader = OpenCheckpoint(one);
    const StatusCode code = reader.has_value() ? StatusCode::kOk : reader.error().code();
    if (code == StatusCode::kPermissionDenied || code == StatusCode::kUnauthenticated) {
      return Fail(reader.error().WithContext(
          fmt::format("there are checkpoints of steps {}", fmt::join(steps, ", "))));
    }
    if (!reader.has_value()) {
      rows.push_back({std::to_string(step), "damaged: " + reader.error().message()});
      if (global.json)
        fmt::print("{}\n", Dump({{"step", step}, {"error", reader.error().message()}}));
      continue;
    }
    const Manifest& manifest = (*reader)->manifest();
    rows.push_back({std::to_string(step), TimeText(manifest.saved_unix_ms),
                    FormatBytes(checkpoint::StateBytes(manifest)),
                    std::to_string(manifest.tensors.size()), manifest.cause,
                    OneLine(manifest.job_name)});
    // The newest step stands first.
    if (!best && manifest.cause.starts_with("best")) best = rows.size() - 1;
    if (global.json) fmt::print("{}\n", Dump(SummaryJson(manifest, path)));
  }
  if (best) rows[*best][4] += ", the best so far";
  if (global.json) return kExitOk;
  if (rows.empty()) {
    fmt::print("no checkpoints in {}\n", place.folder);
  } else {
    fmt::print("{}\n{}", place.folder,
               FormatTable({"STEP", "SAVED", "STATE", "TENSORS", "CAUSE", "JOB"}, rows));
  }
  return kExitOk;
}

Result<std::unique_ptr<Reader>> OpenOne(const std::string& place, int64_t step,
                                        const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const CheckpointPlace found, FindCheckpoint(place, step, global));
  return OpenCheckpoint(found);
}

Result<int> Inspect(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto reader, OpenOne(args.place, args.step, global));
  const Manifest& manifest = reader->manifest();
  if (global.json) {
    fmt::print("{}", checkpoint::FormatManifest(manifest));
    return kExitOk;
  }
  fmt::print("step {} of job {} '{}', saved {} ({})\nlayout {}\n", manifest.step, manifest.job_id,
             OneLine(manifest.job_name), TimeText(manifest.saved_unix_ms), manifest.cause,
             OneLine(manifest.layout));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, tensor] : manifest.tensors) {
    rows.push_back({OneLine(name), tensor.type.ToString(), ir::MemoryKindName(tensor.kind),
                    FormatBytes(tensor.type.bytes()), std::to_string(tensor.boxes.size())});
  }
  fmt::print("{}", FormatTable({"TENSOR", "TYPE", "KIND", "SIZE", "BOXES"}, rows));
  fmt::print("{} tensors, {} in {} files\n", rows.size(),
             FormatBytes(checkpoint::StateBytes(manifest)), manifest.files.size());
  return kExitOk;
}

Result<int> Verify(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const CheckpointPlace found, FindCheckpoint(args.place, args.step, global));
  MW_ASSIGN_OR_RETURN(const auto reader, OpenCheckpoint(found));
  MW_TRY(reader->Verify().WithContext("checkpoint " + found.path()));
  const std::string bytes = FormatBytes(checkpoint::StateBytes(reader->manifest()));
  fmt::print("{}\n", global.json
                         ? Dump(SummaryJson(reader->manifest(), found.path()))
                         : fmt::format("{} is whole: every element of {} tensors, {}", found.path(),
                                       reader->manifest().tensors.size(), bytes));
  return kExitOk;
}

// How two tensors differ; "" when they do not.
Result<std::string> Difference(Reader& a, Reader& b, const std::string& name) {
  const auto in_a = a.manifest().tensors.find(name);
  const auto in_b = b.manifest().tensors.find(name);
  if (in_a == a.manifest().tensors.end()) return std::string("only in the second");
  if (in_b == b.manifest().tensors.end()) return std::string("only in the first");
  const ir::TensorType& type = in_a->second.type;
  if (type != in_b->second.type) {
    return fmt::format("{} and {}", type.ToString(), in_b->second.type.ToString());
  }
  double most = 0;
  int64_t differ = 0;
  for (const checkpoint::StoredBox& stored : in_a->second.boxes) {
    MW_ASSIGN_OR_RETURN(const auto left, a.ReadBox(name, type, stored.box));
    MW_ASSIGN_OR_RETURN(const auto right, b.ReadBox(name, type, stored.box));
    if (left == right) continue;
    const auto size = static_cast<size_t>(ir::DTypeBytes(type.dtype));
    for (size_t at = 0; at + size <= left.size(); at += size) {
      const double distance = std::abs(ir::LoadElement(left.data() + at, type.dtype) -
                                       ir::LoadElement(right.data() + at, type.dtype));
      if (distance == 0) continue;
      ++differ;
      if (!(distance <= most)) most = distance;  // also where it is no number
    }
  }
  if (differ == 0) return std::string();
  return fmt::format("{} of {} elements, by up to {:.3g}", differ, type.elements(), most);
}

Result<int> Diff(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto a, OpenOne(args.place, args.step, global));
  MW_ASSIGN_OR_RETURN(const auto b, OpenOne(args.other, -1, global));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : a->manifest().tensors) names.push_back(name);
  for (const auto& [name, tensor] : b->manifest().tensors) {
    if (!a->manifest().tensors.contains(name)) names.push_back(name);
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : names) {
    MW_ASSIGN_OR_RETURN(const std::string difference, Difference(*a, *b, name));
    if (difference.empty()) continue;
    rows.push_back({OneLine(name), difference});
    if (global.json) fmt::print("{}\n", Dump({{"tensor", name}, {"difference", difference}}));
  }
  if (global.json) return kExitOk;
  if (rows.empty()) {
    fmt::print("the states are equal: steps {} and {}, {} tensors\n", a->manifest().step,
               b->manifest().step, names.size());
    return kExitOk;
  }
  // After a step everything differs: a screen of it says as much as all of it.
  constexpr size_t kMostRows = 40;
  const size_t left_out = rows.size() - std::min(rows.size(), kMostRows);
  rows.resize(rows.size() - left_out);
  fmt::print("{}", FormatTable({"TENSOR", "DIFFERENCE"}, rows));
  if (left_out > 0) fmt::print("and {} more; -o json has them all\n", left_out);
  return kExitOk;
}

std::optional<ir::DType> DTypeOf(const std::string& name) {
  if (name == "float32") return ir::DType::kF32;
  if (name == "float64") return ir::DType::kF64;
  if (name == "bfloat16") return ir::DType::kBF16;
  if (name == "float16") return ir::DType::kF16;
  return std::nullopt;
}

// Of a job's weights.
ir::DType StoredDType(const ir::JobRequest& job) {
  const ir::Graph& graph = job.main().graph;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    return graph.type(graph.node(id).outputs[0]).dtype;
  }
  return ir::DType::kF32;
}

Result<int> Export(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto reader, OpenOne(args.place, args.step, global));
  MW_ASSIGN_OR_RETURN(const std::string bytes, reader->ReadAll(checkpoint::kJobName));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, proto::DecodeJob(bytes));
  const std::optional<ir::DType> dtype = DTypeOf(args.dtype);
  const auto which =
      args.averages ? checkpoint::ExportedWeights::kAverages : checkpoint::ExportedWeights::kOwn;
  const bool file = args.other.ends_with(".safetensors");
  if (file) {
    MW_TRY(checkpoint::ExportWeights(*reader, job.main().graph, args.other, dtype, which));
  } else {
    // First what may be refused.
    MW_TRY(CheckNoWeights(args.other));
    MW_TRY(MakeDirs(args.other));
    MW_TRY(WriteModelFolder(job, dtype.value_or(StoredDType(job)), args.other));
    MW_TRY(checkpoint::ExportFolder(*reader, job.main().graph, args.other, dtype,
                                    args.most_file_mib << 20, which));
  }
  fmt::print("{}\n",
             global.json
                 ? Dump({{file ? "file" : "folder", args.other}, {"step", reader->manifest().step}})
                 : fmt::format("{}: the weights of step {}", args.other, reader->manifest().step));
  return kExitOk;
}

Result<int> RemoveOne(const CheckpointArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const CheckpointPlace found, FindCheckpoint(args.place, args.step, global));
  MW_TRY(RemoveCheckpoint(found));
  fmt::print("{}\n", global.json ? Dump({{"removed", found.path()}}) : "removed " + found.path());
  return kExitOk;
}

Result<int> Run(const CheckpointArgs& args, const GlobalArgs& global) {
  switch (args.action) {
    case CheckpointAction::kList:
      return List(args, global);
    case CheckpointAction::kInspect:
      return Inspect(args, global);
    case CheckpointAction::kVerify:
      return Verify(args, global);
    case CheckpointAction::kDiff:
      return Diff(args, global);
    case CheckpointAction::kExport:
      return Export(args, global);
    case CheckpointAction::kRemove:
      return RemoveOne(args, global);
  }
  return kExitUsage;
}

}  // namespace

int RunCheckpoint(const CheckpointArgs& args, const GlobalArgs& global) {
  const Result<int> code = Run(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
