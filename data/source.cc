#include "data/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace meshwright::data {

Result<std::unique_ptr<Source>> Source::Open(const ir::DataSpec& spec, const StreamOptions& options,
                                             const Opener& opener) {
  MW_TRY(ir::CheckDataSpec(spec));
  if (options.sequence < 1) {
    return Fail(InvalidArgument(
        fmt::format("windows of {} tokens; a sequence has at least 1", options.sequence)));
  }
  MW_ASSIGN_OR_RETURN(const std::vector<ir::DataStream> streams, ir::StreamsOf(spec));
  std::unique_ptr<Source> source(new Source());
  for (const ir::DataStream& stream : streams) {
    MW_ASSIGN_OR_RETURN(auto open, Stream::Open(stream, options, opener));
    source->streams_.push_back(std::move(open));
  }
  return source;
}

const Stream* Source::Find(std::string_view stream) const {
  const auto at = std::find_if(streams_.begin(), streams_.end(),
                               [&](const auto& each) { return each->name() == stream; });
  return at == streams_.end() ? nullptr : at->get();
}

Status Source::Read(std::string_view feed, int64_t sample, const RowBuffer& row) {
  const ir::FeedName name = ir::ParseFeedName(feed);
  for (const auto& stream : streams_) {
    if (stream->name() == name.stream) return stream->Read(name, sample, row);
  }
  std::vector<std::string> known;
  for (const auto& stream : streams_) known.push_back(stream->name());
  return InvalidArgument(
      fmt::format("unknown feed '{}'; known streams: {}", feed, fmt::join(known, ", ")));
}

}  // namespace meshwright::data
