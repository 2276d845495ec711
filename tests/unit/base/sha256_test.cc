#include "base/sha256.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright {
namespace {

// Source: FIPS 180-4 examples (NIST, SHA256.pdf).
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, PiecesHashLikeTheWhole) {
  Sha256 hash;
  hash.Update("ab");
  hash.Update("");
  hash.Update("c");
  EXPECT_EQ(hash.HexDigest(), Sha256Hex("abc"));
}

TEST(Sha256File, HashesLargeFilesAndNamesMissingOnes) {
  const TempDir folder = TempDir::Make().value();
  const std::string bytes(3 << 20, 'x');
  ASSERT_TRUE(WriteFileAtomic(folder.File("data"), bytes).ok());
  EXPECT_EQ(Sha256File(folder.File("data")).value(), Sha256Hex(bytes));
  const Result<std::string> missing = Sha256File(folder.File("none"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.error().message().find(folder.File("none")), std::string::npos);
}

}  // namespace
}  // namespace meshwright
