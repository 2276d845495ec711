#include "collective/cpu/wire.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>

#include <algorithm>

#include "collective/cpu/rendezvous.h"
#include "collective/cpu/tcp_socket.h"

namespace meshwright::collective {
namespace {

ByteView BodyOf(const Bytes& enveloped) { return ByteView(enveloped).subspan(kEnvelopeBytes); }

Manifest SampleManifest() {
  Manifest manifest;
  manifest.round = 3;
  manifest.entries = {{11, 0, 1, {4, 100}, "group a"}, {12, 1, 0, {2, 1 << 20}, "channel b"}};
  manifest.offers_region = true;
  manifest.region = {123, 45, 6789, {1, 2}};
  manifest.note = "why not";
  manifest.memories = {{123, 46, 1 << 21, {3, 4}}, {123, 47, 4096, {5, 6}}};
  manifest.boards = {{77, 0}, {78, 4096}};
  manifest.board_region = {123, 48, 8192, {7, 8}};
  manifest.mapped_boards = true;
  return manifest;
}

TEST(Wire, HelloSurvivesTheRoundTrip) {
  EXPECT_TRUE(rc::check([](const std::string& cluster, const std::string& secret,
                           uint64_t generation, uint64_t from, uint64_t to) {
    RC_PRE(cluster.size() <= kMaxIdentityBytes && secret.size() <= kMaxIdentityBytes);
    const Bytes bytes = EncodeHello({cluster, secret, generation, from, to});
    const auto length = DecodeEnvelope(ByteView(bytes).first(kEnvelopeBytes), kHelloMagic);
    RC_ASSERT(length.has_value());
    RC_ASSERT(*length == bytes.size() - kEnvelopeBytes);
    const Hello hello = DecodeHello(BodyOf(bytes)).value();
    RC_ASSERT(hello.cluster_id == cluster);
    RC_ASSERT(hello.secret == secret);
    RC_ASSERT(hello.generation == generation);
    RC_ASSERT(hello.from_process == from);
    RC_ASSERT(hello.to_process == to);
  }));
}

TEST(Wire, ManifestSurvivesTheRoundTrip) {
  const Manifest sent = SampleManifest();
  const Manifest got = DecodeManifest(EncodeManifest(sent)).value();
  EXPECT_EQ(got.round, sent.round);
  EXPECT_EQ(got.entries, sent.entries);
  EXPECT_TRUE(got.offers_region);
  EXPECT_EQ(got.region.process_id, 123);
  EXPECT_EQ(got.region.descriptor, 45);
  EXPECT_EQ(got.region.bytes, 6789);
  EXPECT_EQ(got.region.token, sent.region.token);
  EXPECT_FALSE(got.mapped_region);
  EXPECT_EQ(got.note, "why not");
  ASSERT_EQ(got.memories.size(), 2u);
  EXPECT_EQ(got.memories[1].descriptor, 47);
  EXPECT_EQ(got.memories[1].token, sent.memories[1].token);
  EXPECT_EQ(got.boards, sent.boards);
  EXPECT_EQ(got.board_region.bytes, 8192);
  EXPECT_TRUE(got.mapped_boards);
}

TEST(Wire, CauseKeepsCodeBlameAndMessage) {
  const Status cause = Unavailable("lost rank 3").WithBlame(Blame::kInfra);
  const Status got = DecodeCause(EncodeCause(cause));
  EXPECT_EQ(got, cause);
  EXPECT_EQ(got.blame(), Blame::kInfra);
  EXPECT_EQ(DecodeCause(EncodeCause(OkStatus())).code(), StatusCode::kDataLoss);
}

TEST(Wire, EveryTruncationIsRefused) {
  const Bytes hello = EncodeHello({"cluster", "secret", 1, 2, 3});
  const Bytes reply = EncodeReply({Unauthenticated("no"), 5});
  const Bytes manifest = EncodeManifest(SampleManifest());
  const Bytes cause = EncodeCause(Aborted("x"));
  for (size_t cut = 0; cut < BodyOf(hello).size(); ++cut) {
    EXPECT_FALSE(DecodeHello(BodyOf(hello).first(cut)).has_value()) << cut;
  }
  for (size_t cut = 0; cut < BodyOf(reply).size(); ++cut) {
    EXPECT_FALSE(DecodeReply(BodyOf(reply).first(cut)).has_value()) << cut;
  }
  for (size_t cut = 0; cut < manifest.size(); ++cut) {
    EXPECT_FALSE(DecodeManifest(ByteView(manifest).first(cut)).has_value()) << cut;
  }
  for (size_t cut = 0; cut < cause.size(); ++cut) {
    EXPECT_EQ(DecodeCause(ByteView(cause).first(cut)).code(), StatusCode::kDataLoss) << cut;
  }
}

// What nobody writes so long is not read either: it would come back as another manifest.
TEST(Wire, NamesLongerThanAnyThatIsWrittenAreRefused) {
  Manifest manifest;
  ManifestEntry entry;
  entry.name = std::string(kMaxIdentityBytes, 'n');
  manifest.entries.push_back(entry);
  Bytes bytes = EncodeManifest(manifest);
  ASSERT_TRUE(DecodeManifest(bytes).has_value());
  const auto name = std::search_n(bytes.begin(), bytes.end(), kMaxIdentityBytes, uint8_t{'n'});
  ASSERT_NE(name, bytes.end());
  name[-2] = 1;  // 257, the lower byte first
  name[-1] = 1;
  bytes.insert(name, 'n');
  EXPECT_FALSE(DecodeManifest(bytes).has_value());
}

TEST(Wire, DecodersSurviveArbitraryBytes) {
  EXPECT_TRUE(rc::check([](const Bytes& bytes) {
    (void)DecodeHello(bytes);
    (void)DecodeReply(bytes);
    (void)DecodeManifest(bytes);
    RC_ASSERT(!DecodeCause(bytes).ok());
    (void)DecodeFrameHeader(bytes);
    (void)DecodeEnvelope(bytes, kHelloMagic);
  }));
}

TEST(Wire, AbsurdLengthsAndTypesAreRefused) {
  Bytes header(kFrameHeaderBytes);
  EncodeFrameHeader({.type = FrameType::kData, .payload_bytes = kMaxFragmentBytes}, header.data());
  EXPECT_TRUE(DecodeFrameHeader(header).has_value());
  EncodeFrameHeader({.type = FrameType::kData, .payload_bytes = kMaxFragmentBytes + 1},
                    header.data());
  EXPECT_FALSE(DecodeFrameHeader(header).has_value());
  EncodeFrameHeader({.type = FrameType::kCredit, .payload_bytes = 1}, header.data());
  EXPECT_FALSE(DecodeFrameHeader(header).has_value());
  EncodeFrameHeader({.type = static_cast<FrameType>(99)}, header.data());
  EXPECT_FALSE(DecodeFrameHeader(header).has_value());

  Bytes hello = EncodeHello({});
  hello[8] = 3;  // version
  const auto other_version = DecodeEnvelope(ByteView(hello).first(kEnvelopeBytes), kHelloMagic);
  EXPECT_EQ(other_version.error().code(), StatusCode::kUnauthenticated);
  EXPECT_NE(other_version.error().message().find("version 3"), std::string::npos);
}

TEST(Wire, ACauseIsNotCutInsideACharacter) {
  const std::string text = std::string(kMaxMessageBytes - 1, 'x') + "é";
  EXPECT_EQ(DecodeCause(EncodeCause(Unavailable(text))).message(),
            std::string(kMaxMessageBytes - 1, 'x'));
}

TEST(Rendezvous, FirstDifferenceIsNamed) {
  const std::vector<ManifestEntry> own = SampleManifest().entries;
  EXPECT_TRUE(ComparePipes(own, own, "rank 1").ok());
  std::vector<ManifestEntry> peer = own;
  peer.pop_back();
  EXPECT_NE(ComparePipes(own, peer, "rank 1").message().find("this process made channel b"),
            std::string::npos);
  EXPECT_NE(ComparePipes(peer, own, "rank 1").message().find("rank 1 made channel b"),
            std::string::npos);
  peer = own;
  peer[0].shape.slots = 5;
  EXPECT_NE(ComparePipes(own, peer, "rank 1").message().find("5 slots"), std::string::npos);
}

TEST(HostPort, ParsesNamesNumbersAndBrackets) {
  EXPECT_EQ(ParseHostPort("localhost:80").value().host, "localhost");
  EXPECT_EQ(ParseHostPort("[::1]:7711").value().host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:7711").value().port, "7711");
  for (const char* bad : {"", "host", "host:", ":80", "host:99999", "host:8a", "host:-1"}) {
    EXPECT_EQ(ParseHostPort(bad).error().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace meshwright::collective
