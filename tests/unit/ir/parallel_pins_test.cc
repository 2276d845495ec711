#include "ir/parallel_pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace meshwright::ir {
namespace {

// A spec in which each field differs from its default: of the first field of the struct to the
// last.
ParallelSpec Unlike() {
  ParallelSpec spec;
  for (const Pin& pin : Pins()) {
    std::visit(
        [&](auto member) {
          using T = std::decay_t<decltype(spec.*member)>;
          if constexpr (std::is_same_v<T, int64_t>) spec.*member += 3;
          if constexpr (std::is_same_v<T, std::string>) spec.*member = "a = \\b\nc";
          if constexpr (std::is_same_v<T, std::optional<bool>>) spec.*member = true;
        },
        pin.member);
  }
  return spec;
}

TEST(ParallelPins, EveryFieldComesBackFromItsText) {
  for (const ParallelSpec& spec : {ParallelSpec(), OpenParallel(), Unlike()}) {
    const Result<ParallelSpec> back = ParsePins(FormatPins(spec));
    ASSERT_TRUE(back.has_value()) << back.error();
    EXPECT_EQ(*back, spec) << FormatPins(spec);
  }
}

// The sizes of what the rows name are the size of the struct, but for padding.
TEST(ParallelPins, NoFieldLacksARow) {
  size_t bytes = 0;
  for (const Pin& pin : Pins()) {
    bytes += std::visit([](auto member) { return sizeof(ParallelSpec().*member); }, pin.member);
  }
  EXPECT_LE(sizeof(ParallelSpec) - bytes, 2 * alignof(std::string))
      << "a field of ParallelSpec has no row in ir/parallel_pins.cc";
}

TEST(ParallelPins, NamesAndKeysAreDistinct) {
  std::set<std::string> names, keys;
  for (const Pin& pin : Pins()) {
    EXPECT_TRUE(names.insert(pin.name).second) << pin.name;
    EXPECT_TRUE(keys.insert(pin.key).second) << pin.key;
  }
}

TEST(ParallelPins, WhatIsOpenSaysSo) {
  ParallelSpec spec = Unlike();
  for (const Pin& pin : Pins()) {
    if (pin.open == nullptr) continue;
    ASSERT_TRUE(SetPin(pin, pin.open, spec).ok()) << pin.name;
    EXPECT_EQ(PinText(pin, spec), pin.open) << pin.name;
  }
}

TEST(ParallelPins, ALineThatIsNoneIsNamed) {
  for (const char* text : {"such=1\n", "data\n", "data=two\n", "sequence_parallel=yes\n"}) {
    const Result<ParallelSpec> spec = ParsePins(text);
    ASSERT_FALSE(spec.has_value()) << text;
    EXPECT_EQ(spec.error().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ParallelPins, WhatHasNoLineKeepsItsDefault) {
  const Result<ParallelSpec> spec = ParsePins("tensor=4\n");
  ASSERT_TRUE(spec.has_value());
  ParallelSpec expected;
  expected.tensor = 4;
  EXPECT_EQ(*spec, expected);
}

}  // namespace
}  // namespace meshwright::ir
