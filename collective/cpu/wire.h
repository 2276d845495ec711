// The byte formats of the data plane between processes. All integers little endian; strings are u16
// length + bytes.
//
//   envelope   u64 magic, u32 version, u32 body bytes, body          handshake only, one each way
//   hello      cluster_id, secret, u64 generation, u64 from, u64 to   body of the dialer's envelope
//   reply      u32 code, u32 blame, message, u64 process              body of the listener's
//   envelope; code 0 = welcome frame      u32 type, u32 payload bytes, u64 key, u64 tag, u64
//   message bytes, payload
//     data     a fragment of a message of pipe `key`; fragments of one pipe come in order
//     credit   the receiver of pipe `key` has consumed `tag` more messages
//     manifest which pipes the process has with this peer (below), one per connect round
//     abort    the fabric's first cause: u32 code, u32 blame, message
//     bye      the sender closes its fabric in good order
//
// Decoders bounds-check everything and never trust a length.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/cpu/region.h"
#include "collective/cpu/slot_ring.h"

namespace meshwright::collective {

using Bytes = std::vector<uint8_t>;
using ByteView = std::span<const uint8_t>;

inline constexpr uint64_t kHelloMagic = 0x4f4c4c45485f574dULL;  // "MW_HELLO"
inline constexpr uint64_t kReplyMagic = 0x594c5045525f574dULL;  // "MW_REPLY"
inline constexpr uint32_t kWireVersion = 2;
inline constexpr size_t kEnvelopeBytes = 16;
inline constexpr uint32_t kMaxHandshakeBytes = 8 << 10;
inline constexpr size_t kMaxIdentityBytes = 256;  // cluster id, secret
inline constexpr size_t kMaxMessageBytes = 4 << 10;

struct Hello {
  std::string cluster_id;
  std::string secret;
  uint64_t generation = 0;
  uint64_t from_process = 0;
  uint64_t to_process = 0;
};

struct HelloReply {
  Status status;  // OK: welcome
  uint64_t process_id = 0;
};

Bytes EncodeHello(const Hello& hello);       // envelope and body
Bytes EncodeReply(const HelloReply& reply);  // envelope and body
// The number of body bytes that follow. Errors: kUnauthenticated for another magic, version or an
// absurd length.
Result<uint32_t> DecodeEnvelope(ByteView envelope, uint64_t magic);
Result<Hello> DecodeHello(ByteView body);
Result<HelloReply> DecodeReply(ByteView body);

enum class FrameType : uint32_t { kData = 1, kCredit, kManifest, kAbort, kBye };

struct FrameHeader {
  FrameType type = FrameType::kData;
  uint32_t payload_bytes = 0;
  uint64_t key = 0;
  uint64_t tag = 0;
  uint64_t message_bytes = 0;
};
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr uint32_t kMaxFragmentBytes = 256 << 10;
inline constexpr uint32_t kMaxManifestBytes = 16 << 20;

void EncodeFrameHeader(const FrameHeader& header, uint8_t* out);
// Errors: kDataLoss for an unknown type or a payload above the type's limit.
Result<FrameHeader> DecodeFrameHeader(ByteView bytes);

Bytes EncodeCause(const Status& cause);
// Never OK: a cause that does not parse, or says OK, becomes kDataLoss.
Status DecodeCause(ByteView payload);

// One pipe as both its processes must see it.
struct ManifestEntry {
  uint64_t key = 0;
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  PipeShape shape = {};
  std::string name = {};
  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

// Where a board lies in the region of boards.
struct BoardEntry {
  uint64_t key = 0;
  int64_t offset = 0;
  friend bool operator==(const BoardEntry&, const BoardEntry&) = default;
};

struct Manifest {
  uint32_t round = 0;
  std::vector<ManifestEntry> entries = {};  // sorted by key
  bool offers_region = false;               // the listening side made a region for the pipes
  RegionHandle region = {};
  bool mapped_region = false;  // the dialing side's answer
  std::string note = {};       // why it was not mapped
  // In the first round: the device memories of the sender, which the other may map.
  std::vector<RegionHandle> memories = {};
  std::vector<BoardEntry> boards = {};  // offered by the listening side, in one region
  RegionHandle board_region = {};
  bool mapped_boards = false;  // the dialing side has all that were offered
};

Bytes EncodeManifest(const Manifest& manifest);
Result<Manifest> DecodeManifest(ByteView payload);  // kDataLoss

// FNV-1a, the key of a pipe.
uint64_t PipeKey(const std::string& name, int from_rank, int to_rank);

}  // namespace meshwright::collective
