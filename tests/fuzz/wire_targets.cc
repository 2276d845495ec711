// The data plane between workers: handshakes, frames, agreements; NCCL's invitations; what places
// of actors say to each other.
#include "actor/frame.h"
#include "collective/communicator.h"
#include "collective/cpu/tcp_socket.h"
#include "collective/cpu/wire.h"
#include "collective/nccl/invitation.h"
#include "collective/nccl/split_plan.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/target.h"

namespace meshwright::fuzz {
namespace {

using collective::ByteView;
using collective::kEnvelopeBytes;

Seeds SeedsOfHandshake() {
  const auto hello = collective::EncodeHello({"cluster", "0123456789abcdef", 7, 1, 2});
  return {TextOf(hello), TextOf(collective::EncodeReply({OkStatus(), 2})),
          TextOf(collective::EncodeReply({Unauthenticated("wrong secret"), 0}))};
}

void RunHandshake(std::string_view input) {
  const ByteView bytes = OctetsOf(input);
  if (bytes.size() < kEnvelopeBytes) return;
  const ByteView envelope = bytes.first(kEnvelopeBytes);
  const ByteView body = bytes.subspan(kEnvelopeBytes);
  for (const uint64_t magic : {collective::kHelloMagic, collective::kReplyMagic}) {
    const auto length = collective::DecodeEnvelope(envelope, magic);
    MW_CHECK(!length.has_value() || *length <= collective::kMaxHandshakeBytes) << "absurd";
  }
  const auto hello = collective::DecodeHello(body);
  if (hello.has_value()) (void)collective::EncodeHello(*hello);
  const auto reply = collective::DecodeReply(body);
  if (reply.has_value()) (void)collective::EncodeReply(*reply);
}

collective::Manifest MeshManifest() {
  collective::Manifest manifest;
  manifest.round = 1;
  for (const int to : {1, 2}) {
    collective::ManifestEntry entry;
    entry.name = "group tensor/0";
    entry.to_rank = to;
    entry.shape = {4, 1 << 16};
    entry.key = collective::PipeKey(entry.name, 0, to);
    manifest.entries.push_back(entry);
  }
  manifest.offers_region = true;
  manifest.note = "a note";
  manifest.memories.resize(2);
  manifest.boards = {{7, 64}};
  return manifest;
}

// A stream of frames, as a link reads it.
void RunFrames(std::string_view input) {
  ByteView rest = OctetsOf(input);
  while (rest.size() >= collective::kFrameHeaderBytes) {
    const auto header = collective::DecodeFrameHeader(rest.first(collective::kFrameHeaderBytes));
    rest = rest.subspan(collective::kFrameHeaderBytes);
    if (!header.has_value() || header->payload_bytes > rest.size()) return;
    const ByteView payload = rest.first(header->payload_bytes);
    MW_CHECK(!collective::DecodeCause(payload).ok()) << "a cause is never OK";
    (void)collective::DecodeManifest(payload);
    rest = rest.subspan(header->payload_bytes);
  }
}

Seeds SeedsOfFrames() {
  const auto framed = [](collective::FrameType type, const collective::Bytes& payload) {
    std::string frame(collective::kFrameHeaderBytes, '\0');
    collective::EncodeFrameHeader({.type = type,
                                   .payload_bytes = static_cast<uint32_t>(payload.size()),
                                   .key = 9,
                                   .tag = 1,
                                   .message_bytes = payload.size()},
                                  reinterpret_cast<uint8_t*>(frame.data()));
    return frame + TextOf(payload);
  };
  using collective::FrameType;
  const std::string manifest =
      framed(FrameType::kManifest, collective::EncodeManifest(MeshManifest()));
  const std::string abort =
      framed(FrameType::kAbort, collective::EncodeCause(Unavailable("lost rank 3")));
  return {manifest + framed(FrameType::kData, {1, 2, 3, 4}) + framed(FrameType::kCredit, {}),
          abort + framed(FrameType::kBye, {})};
}

void RunMeshManifest(std::string_view input) {
  const auto manifest = collective::DecodeManifest(OctetsOf(input));
  if (!manifest.has_value()) return;
  const auto again = collective::DecodeManifest(collective::EncodeManifest(*manifest));
  MW_CHECK(again.has_value() && again->entries == manifest->entries) << "another manifest";
}

Seeds SeedsOfInvitations() {
  collective::nccl::Invitation invitation;
  invitation.worker = "w 1";
  invitation.ranks = {0, 1, 5};
  invitation.generation = 7;
  invitation.nccl = 22809;
  invitation.driver = invitation.runtime = 13000;
  invitation.ids.resize(2);
  return {collective::nccl::FormatInvitation(invitation)};
}

void RunInvitation(std::string_view input) {
  const auto invitation = collective::nccl::ParseInvitation(std::string(input));
  if (invitation.has_value()) (void)collective::nccl::CheckInvitations({*invitation}, 3);
}

void RunLinks(std::string_view input) {
  ExpectStable(input, collective::nccl::DecodeLinks,
               [](const auto& links) { return collective::nccl::EncodeLinks(links); });
}

void RunActorFrame(std::string_view input) {
  ExpectStable(input, actor::DecodeFrame, actor::EncodeFrame);
}

}  // namespace

std::vector<Target> WireTargets() {
  return {
      {"handshake", "collective::DecodeEnvelope, DecodeHello, DecodeReply", SeedsOfHandshake,
       RunHandshake, 8'000},
      {"frames", "collective::DecodeFrameHeader, DecodeCause, DecodeManifest", SeedsOfFrames,
       RunFrames, 8'000},
      {"wire-manifest", "collective::DecodeManifest",
       [] { return Seeds{TextOf(collective::EncodeManifest(MeshManifest()))}; }, RunMeshManifest,
       8'000},
      {"nccl-invitation", "collective::nccl::ParseInvitation", SeedsOfInvitations, RunInvitation},
      {"nccl-links", "collective::nccl::DecodeLinks",
       [] {
         const std::vector<collective::nccl::Link> links = {
             {collective::nccl::Link::Kind::kGroup, "data/0", {0, 2}},
             {collective::nccl::Link::Kind::kChannel, "act", {0, 1}, 4, 1 << 20}};
         return Seeds{collective::nccl::EncodeLinks(links)};
       },
       RunLinks, 8'000},
      {"host-port", "collective::ParseHostPort, ParseTransport",
       [] {
         return Seeds{"10.0.0.2:7711", "[::1]:80", "host:0", "tcp"};
       },
       [](std::string_view input) {
         (void)collective::ParseHostPort(std::string(input));
         (void)collective::ParseTransport(std::string(input));
       }},
      {"actor-frame", "actor::DecodeFrame",
       [] {
         actor::Frame frame;
         frame.kind = actor::FrameKind::kReply;
         frame.code = StatusCode::kNotFound;
         frame.message = 7;
         frame.text = "gone";
         frame.bytes = "rest";
         return Seeds{actor::EncodeFrame(frame), actor::EncodeFrame({})};
       },
       RunActorFrame, 8'000},
  };
}

}  // namespace meshwright::fuzz
