#include "worker/data_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshwright::worker {

Result<UniqueFd> OpenJobFile(const FilePlaces& places, const ir::FileRef& file) {
  if (file.in_place()) {
    static const data::Roots kNone;
    return (places.roots != nullptr ? *places.roots : kNone).OpenFile(file);
  }
  MW_ASSIGN_OR_RETURN(const std::string path, places.blobs->Path(file.blob, places.cancelled));
  return data::OpenPlainFile(path, file.blob.name);
}

Result<FeedTypes> FeedTypesOf(const std::vector<ir::Program>& programs,
                              const std::vector<std::string>& staged) {
  FeedTypes types;
  for (const ir::Program& program : programs) {
    for (const ir::Executable& executable : program.executables) {
      const ir::Graph& graph = *executable.graph;
      for (const NodeId id : graph.NodesOf(ir::Op::kFeed)) {
        const ir::Node& feed = graph.node(id);
        const std::string source = feed.attrs.Str("source");
        if (std::find(staged.begin(), staged.end(), source) != staged.end()) continue;
        const ir::DType dtype = graph.type(feed.outputs[0]).dtype;
        const auto [known, is_new] = types.emplace(source, dtype);
        if (is_new || known->second == dtype) continue;
        return Fail(InvalidArgument(
            fmt::format("feed '{}' is read as {} and as {}; cast one of them in the graph", source,
                        ir::DTypeName(known->second), ir::DTypeName(dtype))));
      }
    }
  }
  return types;
}

Result<std::unique_ptr<DataFeed>> DataFeed::Open(const ir::DataSpec& data,
                                                 const data::StreamOptions& options,
                                                 FeedTypes types, const FilePlaces& places) {
  const auto opener = [places](const ir::FileRef& file) { return OpenJobFile(places, file); };
  ir::DataSpec files = data;
  std::erase_if(files.streams, [](const ir::DataStream& each) { return !each.actor.empty(); });
  std::unique_ptr<data::Source> source;
  // Without any stream a spec means its one file.
  if (!files.streams.empty() || data.streams.empty()) {
    MW_ASSIGN_OR_RETURN(source, data::Source::Open(files, options, opener));
  }
  return std::unique_ptr<DataFeed>(new DataFeed(std::move(source), std::move(types)));
}

Status DataFeed::ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) {
  const auto type = types_.find(source);
  if (type == types_.end()) {
    return InvalidArgument(fmt::format("no program reads the feed '{}'", source));
  }
  const ir::FeedName feed = ir::ParseFeedName(source);
  if (actors_ && actors_->Has(feed.stream)) {
    return actors_->Read(feed, sample, {type->second, row});
  }
  if (source_) return source_->Read(source, sample, {type->second, row});
  return InvalidArgument(fmt::format("unknown feed '{}'", source));
}

}  // namespace meshwright::worker
