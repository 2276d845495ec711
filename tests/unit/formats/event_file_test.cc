#include "formats/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string EventBytes(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

// Of TensorBoard: its version, and one scalar.
const char* const kVersionRecord =
    "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a";
const char* const kLossRecord =
    "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000c03f1b484874";

TEST(EventFile, ChecksumsAreThoseOfTheStandardAndOfTensorBoard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(MaskedCrc32c("\x1a\x11"
                         "CRC test, one two"),
            0x5794d08au);
}

TEST(EventFile, RecordsAreTensorBoardsBytes) {
  EXPECT_EQ(FormatEvent({1.0, 0, std::string(kEventFileVersion), {}}), EventBytes(kVersionRecord));
  EXPECT_EQ(FormatEvent({2.0, 7, "", {{"loss", 1.5f}}}), EventBytes(kLossRecord));
}

TEST(EventFile, WhatIsWrittenIsReadBack) {
  const Event version{1.5, 0, std::string(kEventFileVersion), {}};
  const Event many{1.7e9, 1'000'000, "", {{"loss", -0.25f}, {"throughput(tps)", 3e6f}}};
  const Event zero{0, -1, "", {{"lr", 0.f}}};
  const auto events = ParseEvents(FormatEvent(version) + FormatEvent(many) + FormatEvent(zero));
  ASSERT_TRUE(events.has_value()) << events.error();
  EXPECT_THAT(*events, ElementsAre(version, many, zero));
}

TEST(EventFile, ARecordThatIsStillWrittenIsNotThereYet) {
  const std::string file = EventBytes(kVersionRecord) + EventBytes(kLossRecord);
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    const auto events = ParseEvents(std::string_view(file).substr(0, bytes));
    ASSERT_TRUE(events.has_value()) << bytes << ": " << events.error();
    EXPECT_EQ(events->size(), bytes < 40 ? 0u : 1u) << bytes;
  }
  EXPECT_EQ(ParseEvents(file)->size(), 2u);
}

TEST(EventFile, EveryDamagedByteIsFound) {
  const std::string file = EventBytes(kVersionRecord) + EventBytes(kLossRecord);
  for (size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto events = ParseEvents(damaged);
    ASSERT_FALSE(events.has_value()) << at;
    EXPECT_EQ(events.error().code(), StatusCode::kDataLoss);
    EXPECT_THAT(events.error().message(), HasSubstr(at < 40 ? "byte 0 " : "byte 40 "));
  }
}

// Checksums may be right over what is no event.
TEST(EventFile, AMessageThatIsNoneIsRefused) {
  for (const std::string& data : {std::string("\x2a\x7f"), std::string("\x09\x01"),
                                  std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")}) {
    std::string length(8, '\0');
    length[0] = static_cast<char>(data.size());
    std::string record = length;
    const auto put = [&](uint32_t crc) {
      for (int shift = 0; shift < 32; shift += 8) record += static_cast<char>(crc >> shift);
    };
    put(MaskedCrc32c(length));
    record += data;
    put(MaskedCrc32c(data));
    const auto events = ParseEvents(record);
    ASSERT_FALSE(events.has_value());
    EXPECT_THAT(events.error().message(), HasSubstr("message"));
  }
}

TEST(EventFile, NamesAreThoseThatTensorBoardLooksFor) {
  EXPECT_EQ(EventFileName(1'700'000'000, "head", "7.meshwright"),
            "events.out.tfevents.1700000000.head.7.meshwright");
  EXPECT_EQ(EventFileName(5, "h", "x"), "events.out.tfevents.0000000005.h.x");
}

}  // namespace
}  // namespace meshwright::formats
