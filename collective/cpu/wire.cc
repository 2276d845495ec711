#include "collective/cpu/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/utf8.h"

namespace meshwright::collective {
namespace {

class Writer {
 public:
  template <typename T>
  void Integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void String(std::string_view text, size_t limit) {
    const std::string_view kept = TruncateUtf8(text, limit);
    Integer(static_cast<uint16_t>(kept.size()));
    out_.insert(out_.end(), kept.begin(), kept.end());
  }
  Bytes Take() { return std::move(out_); }

 private:
  Bytes out_;
};

// After the first read beyond the end, everything reads as zero and complete() is false.
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}
  template <typename T>
  T Integer() {
    uint64_t value = 0;
    const ByteView bytes = Take(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<T>(value);
  }
  // One that is longer than Writer writes any is malformed.
  std::string String(size_t limit) {
    const auto size = Integer<uint16_t>();
    if (size > limit) short_ = true;
    const ByteView bytes = Take(size);
    return std::string(bytes.begin(), bytes.end());
  }
  size_t left() const { return rest_.size(); }
  bool complete() const { return !short_ && rest_.empty(); }

 private:
  ByteView Take(size_t count) {
    if (count > rest_.size()) {
      short_ = true;
      rest_ = {};
      return {};
    }
    const ByteView taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  ByteView rest_;
  bool short_ = false;
};

Bytes Envelope(uint64_t magic, const Bytes& body) {
  Writer writer;
  writer.Integer(magic);
  writer.Integer(kWireVersion);
  writer.Integer(static_cast<uint32_t>(body.size()));
  Bytes bytes = writer.Take();
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

void WriteCause(const Status& status, Writer& writer) {
  writer.Integer(static_cast<int32_t>(status.code()));
  writer.Integer(static_cast<int32_t>(status.blame()));
  writer.String(status.message(), kMaxMessageBytes);
}

Status ReadCause(Reader& reader) {
  const auto code = reader.Integer<int32_t>();
  const auto blame = reader.Integer<int32_t>();
  std::string message = reader.String(kMaxMessageBytes);
  if (code == 0) {
    return OkStatus();
  }
  const bool known = code > 0 && code <= static_cast<int32_t>(StatusCode::kUnauthenticated);
  const Status status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                      std::move(message));
  const bool blamed = blame > 0 && blame <= static_cast<int32_t>(Blame::kInternal);
  return blamed ? status.WithBlame(static_cast<Blame>(blame)) : status;
}

void WriteHandle(const RegionHandle& handle, Writer& writer) {
  writer.Integer(handle.process_id);
  writer.Integer(handle.descriptor);
  writer.Integer(handle.bytes);
  writer.Integer(handle.token[0]);
  writer.Integer(handle.token[1]);
}

RegionHandle ReadHandle(Reader& reader) {
  RegionHandle handle;
  handle.process_id = reader.Integer<int64_t>();
  handle.descriptor = reader.Integer<int32_t>();
  handle.bytes = reader.Integer<int64_t>();
  handle.token[0] = reader.Integer<uint64_t>();
  handle.token[1] = reader.Integer<uint64_t>();
  return handle;
}

uint32_t PayloadLimit(FrameType type) {
  switch (type) {
    case FrameType::kData:
      return kMaxFragmentBytes;
    case FrameType::kManifest:
      return kMaxManifestBytes;
    case FrameType::kAbort:
      return kMaxHandshakeBytes;
    case FrameType::kCredit:
    case FrameType::kBye:
      return 0;
  }
  return 0;
}

}  // namespace

Bytes EncodeHello(const Hello& hello) {
  Writer writer;
  writer.String(hello.cluster_id, kMaxIdentityBytes);
  writer.String(hello.secret, kMaxIdentityBytes);
  writer.Integer(hello.generation);
  writer.Integer(hello.from_process);
  writer.Integer(hello.to_process);
  return Envelope(kHelloMagic, writer.Take());
}

Bytes EncodeReply(const HelloReply& reply) {
  Writer writer;
  WriteCause(reply.status, writer);
  writer.Integer(reply.process_id);
  return Envelope(kReplyMagic, writer.Take());
}

Result<uint32_t> DecodeEnvelope(ByteView envelope, uint64_t magic) {
  Reader reader(envelope);
  if (envelope.size() != kEnvelopeBytes || reader.Integer<uint64_t>() != magic) {
    return Fail(Unauthenticated("the peer does not speak this protocol; check the data address"));
  }
  const auto version = reader.Integer<uint32_t>();
  if (version != kWireVersion) {
    return Fail(Unauthenticated(
        fmt::format("the peer speaks version {} of the data protocol, this process {}; run the "
                    "same release on all workers",
                    version, kWireVersion)));
  }
  const auto bytes = reader.Integer<uint32_t>();
  if (bytes > kMaxHandshakeBytes) {
    return Fail(Unauthenticated(
        fmt::format("handshake of {} bytes, at most {} are allowed", bytes, kMaxHandshakeBytes)));
  }
  return bytes;
}

Result<Hello> DecodeHello(ByteView body) {
  Reader reader(body);
  Hello hello;
  hello.cluster_id = reader.String(kMaxIdentityBytes);
  hello.secret = reader.String(kMaxIdentityBytes);
  hello.generation = reader.Integer<uint64_t>();
  hello.from_process = reader.Integer<uint64_t>();
  hello.to_process = reader.Integer<uint64_t>();
  if (!reader.complete()) {
    return Fail(Unauthenticated(fmt::format("malformed handshake of {} bytes", body.size())));
  }
  return hello;
}

Result<HelloReply> DecodeReply(ByteView body) {
  Reader reader(body);
  HelloReply reply;
  reply.status = ReadCause(reader);
  reply.process_id = reader.Integer<uint64_t>();
  if (!reader.complete()) {
    return Fail(Unauthenticated(fmt::format("malformed handshake reply of {} bytes", body.size())));
  }
  return reply;
}

void EncodeFrameHeader(const FrameHeader& header, uint8_t* out) {
  const auto put = [&out](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      *out++ = static_cast<uint8_t>(value >> (8 * i));
    }
  };
  put(static_cast<uint32_t>(header.type), 4);
  put(header.payload_bytes, 4);
  put(header.key, 8);
  put(header.tag, 8);
  put(header.message_bytes, 8);
}

Result<FrameHeader> DecodeFrameHeader(ByteView bytes) {
  Reader reader(bytes);
  FrameHeader header;
  const auto type = reader.Integer<uint32_t>();
  header.type = static_cast<FrameType>(type);
  header.payload_bytes = reader.Integer<uint32_t>();
  header.key = reader.Integer<uint64_t>();
  header.tag = reader.Integer<uint64_t>();
  header.message_bytes = reader.Integer<uint64_t>();
  if (!reader.complete() || type < 1 || type > static_cast<uint32_t>(FrameType::kBye) ||
      header.payload_bytes > PayloadLimit(header.type)) {
    return Fail(DataLoss(
        fmt::format("malformed frame: type {} with {} bytes", type, header.payload_bytes)));
  }
  return header;
}

Bytes EncodeCause(const Status& cause) {
  Writer writer;
  WriteCause(cause, writer);
  return writer.Take();
}

Status DecodeCause(ByteView payload) {
  Reader reader(payload);
  const Status cause = ReadCause(reader);
  if (!reader.complete() || cause.ok()) {
    return DataLoss("the peer aborted with a cause that does not parse");
  }
  return cause;
}

Bytes EncodeManifest(const Manifest& manifest) {
  Writer writer;
  writer.Integer(manifest.round);
  writer.Integer(static_cast<uint32_t>(manifest.entries.size()));
  for (const ManifestEntry& entry : manifest.entries) {
    writer.Integer(entry.key);
    writer.Integer(entry.from_rank);
    writer.Integer(entry.to_rank);
    writer.Integer(entry.shape.slots);
    writer.Integer(entry.shape.slot_bytes);
    writer.String(entry.name, kMaxIdentityBytes);
  }
  writer.Integer(static_cast<uint8_t>(manifest.offers_region));
  WriteHandle(manifest.region, writer);
  writer.Integer(static_cast<uint8_t>(manifest.mapped_region));
  writer.String(manifest.note, kMaxMessageBytes);
  writer.Integer(static_cast<uint32_t>(manifest.memories.size()));
  for (const RegionHandle& memory : manifest.memories) {
    WriteHandle(memory, writer);
  }
  writer.Integer(static_cast<uint32_t>(manifest.boards.size()));
  for (const BoardEntry& board : manifest.boards) {
    writer.Integer(board.key);
    writer.Integer(board.offset);
  }
  WriteHandle(manifest.board_region, writer);
  writer.Integer(static_cast<uint8_t>(manifest.mapped_boards));
  return writer.Take();
}

Result<Manifest> DecodeManifest(ByteView payload) {
  Reader reader(payload);
  Manifest manifest;
  manifest.round = reader.Integer<uint32_t>();
  const auto count = reader.Integer<uint32_t>();
  for (uint32_t i = 0; i < count && reader.left() > 0; ++i) {
    ManifestEntry entry;
    entry.key = reader.Integer<uint64_t>();
    entry.from_rank = reader.Integer<int32_t>();
    entry.to_rank = reader.Integer<int32_t>();
    entry.shape.slots = reader.Integer<int32_t>();
    entry.shape.slot_bytes = reader.Integer<int64_t>();
    entry.name = reader.String(kMaxIdentityBytes);
    manifest.entries.push_back(std::move(entry));
  }
  manifest.offers_region = reader.Integer<uint8_t>() != 0;
  manifest.region = ReadHandle(reader);
  manifest.mapped_region = reader.Integer<uint8_t>() != 0;
  manifest.note = reader.String(kMaxMessageBytes);
  const auto memories = reader.Integer<uint32_t>();
  while (manifest.memories.size() < memories && reader.left() > 0) {
    manifest.memories.push_back(ReadHandle(reader));
  }
  const auto boards = reader.Integer<uint32_t>();
  while (manifest.boards.size() < boards && reader.left() > 0) {
    const auto key = reader.Integer<uint64_t>();
    manifest.boards.push_back({key, reader.Integer<int64_t>()});
  }
  manifest.board_region = ReadHandle(reader);
  manifest.mapped_boards = reader.Integer<uint8_t>() != 0;
  if (!reader.complete() || manifest.entries.size() != count ||
      manifest.memories.size() != memories || manifest.boards.size() != boards) {
    return Fail(DataLoss(fmt::format("malformed manifest of {} bytes", payload.size())));
  }
  return manifest;
}

uint64_t PipeKey(const std::string& name, int from_rank, int to_rank) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : fmt::format("{}/{}>{}", name, from_rank, to_rank)) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace meshwright::collective
