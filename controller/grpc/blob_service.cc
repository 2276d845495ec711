#include "controller/grpc/blob_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/os_error.h"
#include "base/unique_fd.h"
#include "controller/grpc/call_guard.h"
#include "controller/grpc/timed_stream.h"
#include "proto/convert.h"

namespace meshwright::controller {

Status BlobServiceImpl::Admit(const grpc::ServerContext& context, const char* path) const {
  return internal::ToStatus(CheckCall(context, *parts_.access, path));
}

grpc::Status BlobServiceImpl::StreamedHas(grpc::ServerContext* context, HasStream* stream) {
  const CallTimer timer(parts_.metrics, "blob", "has");
  Status status = Admit(*context, "/meshwright.v1.BlobService/Has");
  if (status.ok()) status = HasBlob(*context, *stream);
  return timer.Done(status);
}

Status BlobServiceImpl::HasBlob(grpc::ServerContext& context, HasStream& stream) {
  v1::HasBlobRequest request;
  TimedStream reader(stream, parts_, context, parts_.limits.request_ms);
  if (!reader.Read(&request)) return Cancelled("the request did not come whole");
  v1::HasBlobReply reply;
  // One that was damaged is not here: it is uploaded again.
  const bool sound = parts_.blobs->Verify(request.sha256());
  if (const auto size = parts_.blobs->Find(request.sha256()); sound && size) {
    reply.set_present(true);
    reply.set_size_bytes(*size);
  }
  stream.Write(reply);
  return OkStatus();
}

grpc::Status BlobServiceImpl::Put(grpc::ServerContext* context,
                                  grpc::ServerReader<v1::PutBlobChunk>* reader, v1::PutBlobReply*) {
  const CallTimer timer(parts_.metrics, "blob", "put");
  constexpr const char* kPath = "/meshwright.v1.BlobService/Put";
  const auto caller = CheckCall(*context, *parts_.access, kPath);
  if (!caller.has_value()) return timer.Done(caller.error());
  const Status status = PutBlob(*context, *reader);
  parts_.access->Answered(kPath, *caller, "", status);
  return timer.Done(status);
}

Status BlobServiceImpl::PutBlob(grpc::ServerContext& context,
                                grpc::ServerReader<v1::PutBlobChunk>& stream) {
  TimedStream reader(stream, parts_, context, parts_.limits.upload_idle_ms);
  v1::PutBlobChunk chunk;
  if (!reader.Read(&chunk)) return InvalidArgument("an upload without a first chunk");
  MW_ASSIGN_OR_RETURN(auto writer, parts_.blobs->Begin(chunk.sha256(), chunk.size_bytes()));
  do {
    MW_TRY(writer->Write(chunk.data()));
  } while (reader.Read(&chunk));
  MW_TRY(reader.End());
  return writer->Finish();
}

grpc::Status BlobServiceImpl::StreamedGet(grpc::ServerContext* context, GetStream* stream) {
  const CallTimer timer(parts_.metrics, "blob", "get");
  Status status = Admit(*context, "/meshwright.v1.BlobService/Get");
  if (status.ok()) status = GetBlob(*context, *stream);
  return timer.Done(status);
}

Status BlobServiceImpl::GetBlob(grpc::ServerContext& context, GetStream& stream) {
  v1::GetBlobRequest request;
  TimedStream reader(stream, parts_, context, parts_.limits.request_ms);
  if (!reader.Read(&request)) return Cancelled("the request did not come whole");
  MW_ASSIGN_OR_RETURN(std::string path, parts_.blobs->PathOf(request.sha256()));
  const int64_t size = parts_.blobs->Find(request.sha256()).value_or(0);
  int64_t offset = request.offset();
  if (offset < 0 || offset > size) {
    return OutOfRange(fmt::format("offset {} of a blob of {} bytes", offset, size));
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return OsError(errno, path);
  v1::BlobChunk chunk;
  chunk.set_size_bytes(size);
  do {
    const auto want = static_cast<size_t>(std::min(proto::kChunkBytes, size - offset));
    chunk.mutable_data()->resize(want);
    const ssize_t got = ::pread(fd.get(), chunk.mutable_data()->data(), want, offset);
    if (got < 0) return OsError(errno, path);
    if (static_cast<size_t>(got) != want) return DataLoss(fmt::format("{} became shorter", path));
    if (!stream.Write(chunk)) return Cancelled("the reader went away");
    offset += got;
  } while (offset < size);
  return OkStatus();
}

grpc::Status BlobServiceImpl::PutTiles(grpc::ServerContext* context,
                                       grpc::ServerReader<v1::TileChunk>* reader,
                                       v1::PutTilesReply* reply) {
  const CallTimer timer(parts_.metrics, "blob", "put_tiles");
  if (const Status status = Admit(*context, "/meshwright.v1.BlobService/PutTiles"); !status.ok()) {
    return timer.Done(status);
  }
  const auto tiles = PutAllTiles(*context, *reader);
  if (tiles.has_value()) reply->set_tiles(*tiles);
  return timer.Done(internal::ToStatus(tiles));
}

Result<int64_t> BlobServiceImpl::PutAllTiles(grpc::ServerContext& context,
                                             grpc::ServerReader<v1::TileChunk>& stream) {
  TimedStream reader(stream, parts_, context, parts_.limits.upload_idle_ms);
  int64_t tiles = 0;
  int64_t expected = 0;
  bool open = false;
  proto::WeightTile tile;
  v1::TileChunk chunk;
  while (reader.Read(&chunk)) {
    if (!open) {
      // Asked before a byte is kept: what no file waits for costs no memory.
      MW_ASSIGN_OR_RETURN(tile, proto::DecodeTileHead(chunk));
      MW_ASSIGN_OR_RETURN(expected, weights_->ExpectedBytes(tile));
      tile.data.reserve(static_cast<size_t>(expected));
      open = true;
    }
    const std::span bytes = std::as_bytes(std::span(chunk.data()));
    if (static_cast<int64_t>(bytes.size()) > expected - static_cast<int64_t>(tile.data.size())) {
      return Fail(InvalidArgument(
          fmt::format("a tile of '{}' has more than its {} bytes", tile.param, expected)));
    }
    tile.data.insert(tile.data.end(), bytes.begin(), bytes.end());
    if (!chunk.last()) continue;
    MW_TRY(weights_->Write(tile));
    open = false;
    ++tiles;
  }
  MW_TRY(reader.End());
  if (open) return Fail(DataLoss(fmt::format("a tile of '{}' ended early", tile.param)));
  return tiles;
}

}  // namespace meshwright::controller
