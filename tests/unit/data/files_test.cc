// Roots, identity, maps, paths: how files are found, opened and known again.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "data/file_set.h"
#include "data/identity.h"
#include "data/paths.h"
#include "data/roots.h"
#include "tests/unit/data/data_files.h"

namespace meshwright::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::FileRef Below(const std::string& root, const std::string& path) {
  ir::FileRef file;
  file.blob.name = path;
  file.root = root;
  file.path = path;
  return file;
}

class RootsTest : public DataFilesTest {
 protected:
  std::string Read(const Roots& roots, const ir::FileRef& file) {
    const auto fd = roots.OpenFile(file);
    if (!fd.has_value()) return fd.error().ToString();
    std::string text(100, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, ::read(fd->get(), text.data(), 100))));
    return text;
  }
};

TEST_F(RootsTest, FilesBelowARootAreReadInPlace) {
  Write("data/a.txt", "one");
  Write("data/deep/b.txt", "two");
  const auto roots = Roots::Open({{"d", dir_.File("data")}});
  ASSERT_TRUE(roots.has_value()) << roots.error();
  EXPECT_EQ(Read(*roots, Below("d", "a.txt")), "one");
  EXPECT_EQ(Read(*roots, Below("d", "deep/b.txt")), "two");
  EXPECT_EQ(Read(*roots, Below("d", "deep/../a.txt")), "one");
}

TEST_F(RootsTest, NothingLeadsOutOfARoot) {
  Write("secret.txt", "secret");
  Write("data/a.txt", "one");
  Write("database/c.txt", "another folder whose name begins as the root's");
  ASSERT_EQ(::symlink(dir_.File("secret.txt").c_str(), dir_.File("data/link").c_str()), 0);
  ASSERT_EQ(::symlink("..", dir_.File("data/up").c_str()), 0);
  ASSERT_EQ(::symlink("a.txt", dir_.File("data/inside").c_str()), 0);
  ASSERT_EQ(::mkfifo(dir_.File("data/pipe").c_str(), 0600), 0);
  const auto roots = Roots::Open({{"d", dir_.File("data")}});
  ASSERT_TRUE(roots.has_value()) << roots.error();
  for (const char* path :
       {"link", "up/secret.txt", "../secret.txt", "up/data/../secret.txt", "../database/c.txt"}) {
    EXPECT_THAT(Read(*roots, Below("d", path)),
                AllOf(HasSubstr("permission denied"), HasSubstr("leads out of the root")))
        << path;
  }
  EXPECT_THAT(Read(*roots, Below("d", "..")), HasSubstr("leads out"));
  EXPECT_EQ(Read(*roots, Below("d", "inside")), "one");
  EXPECT_THAT(Read(*roots, Below("d", "pipe")), HasSubstr("no plain file"));
  EXPECT_THAT(Read(*roots, Below("d", "none")), HasSubstr("not found"));
}

TEST_F(RootsTest, AnUnknownRootSaysHowToStartAWorkerWithIt) {
  const auto roots = Roots::Open({{"d", dir_.path()}});
  ASSERT_TRUE(roots.has_value()) << roots.error();
  EXPECT_THAT(Read(*roots, Below("/mnt/x", "a")),
              AllOf(HasSubstr("no data root '/mnt/x' (it has: d)"),
                    HasSubstr("start it with --data-root /mnt/x")));
  EXPECT_THAT(Read(Roots(), Below("corpora", "a")),
              AllOf(HasSubstr("it has: none"), HasSubstr("--data-root corpora=FOLDER")));
}

TEST_F(RootsTest, TextBecomesARoot) {
  const auto parse = [](const char* text) { return ParseRoot(text).value_or(ir::DataRoot()); };
  EXPECT_EQ(parse("/data/"), (ir::DataRoot{"/data", "/data"}));
  EXPECT_EQ(parse("corpora=/mnt/a/../b"), (ir::DataRoot{"corpora", "/mnt/b"}));
  EXPECT_EQ(parse("/with=sign"), (ir::DataRoot{"/with=sign", "/with=sign"}));
  EXPECT_EQ(parse("here").path, AbsolutePath("here"));
  EXPECT_FALSE(ParseRoot("").has_value());
  EXPECT_FALSE(ParseRoot("a b=/data").has_value());
  EXPECT_FALSE(ParseRoot("name=").has_value());
  EXPECT_FALSE(Roots::Open({{"a", "/tmp"}, {"a", "/usr"}}).has_value());
  EXPECT_FALSE(Roots::Open({{"a", dir_.File("none")}}).has_value());
  EXPECT_FALSE(Roots::Open({{"a", Write("file", "x")}}).has_value());
  EXPECT_EQ(PathBelow("/a", "/a/b/c"), "b/c");
  EXPECT_EQ(PathBelow("/", "/b"), "b");
  EXPECT_EQ(PathBelow("/a", "/ab/c"), "");
  EXPECT_EQ(PathBelow("/a", "/a"), "");
}

// ---- Identity ----

class IdentityTest : public DataFilesTest {
 protected:
  std::string Hash(const std::string& bytes) {
    const auto fd = OpenPlainFile(Write("f", bytes), "f");
    const auto hash = SampledHash(fd->get(), static_cast<int64_t>(bytes.size()), "f");
    EXPECT_TRUE(hash.has_value()) << hash.error();
    return hash.value_or("");
  }
};

TEST_F(IdentityTest, SmallFilesAreHashedWholeBehindTheirSize) {
  // sha256sum of 00 * 8, and of 03 00 * 7 'a' 'b' 'c'.
  EXPECT_EQ(Hash(""), "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
  EXPECT_EQ(Hash("abc"), Sha256Hex(std::string("\x03\0\0\0\0\0\0\0abc", 11)));
  std::string bytes(kSampleBytes * kSamples, 'x');
  const std::string before = Hash(bytes);
  for (const size_t at : {size_t{0}, size_t{99'999}, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] = 'y';
    EXPECT_NE(Hash(other), before) << at;
  }
}

TEST_F(IdentityTest, LargeFilesAreHashedAtTheirSamples) {
  std::string bytes(3'000'000, 'x');
  const std::string before = Hash(bytes);
  const auto span = static_cast<double>(3'000'000 - kSampleBytes);
  const auto changed = [&](size_t at) {
    std::string other = bytes;
    other[at] = 'y';
    return Hash(other) != before;
  };
  EXPECT_TRUE(changed(0));
  EXPECT_TRUE(changed(bytes.size() - 1));
  for (const int i : {1, 31, 62}) {
    const auto at = static_cast<size_t>(span * i / 63);
    EXPECT_TRUE(changed(at + 1)) << i;
    EXPECT_TRUE(changed(at + kSampleBytes - 2)) << i;
    EXPECT_FALSE(changed(at + kSampleBytes + 10)) << i;
  }
  bytes.push_back('x');
  EXPECT_NE(Hash(bytes), before);
}

// ---- File sets ----

class FileSetTest : public DataFilesTest {
 protected:
  ir::FileRef InPlace(const std::string& name, const std::string& bytes) {
    const std::string path = Write(name, bytes);
    ir::FileRef file = Below("d", name);
    file.blob.size_bytes = static_cast<int64_t>(bytes.size());
    const auto fd = OpenPlainFile(path, path);
    file.sampled = SampledHash(fd->get(), file.blob.size_bytes, path).value();
    return file;
  }
  Opener FromRoot() {
    roots_ = Roots::Open({{"d", dir_.path()}}).value();
    return [this](const ir::FileRef& file) {
      ++opened_;
      return roots_.OpenFile(file);
    };
  }
  Roots roots_;
  int opened_ = 0;
};

TEST_F(FileSetTest, CopiesThatDifferAreFoundBeforeAnythingIsRead) {
  const ir::FileRef file = InPlace("a", "0123456789");
  ASSERT_TRUE(FileSet::Open({file}, FromRoot()).has_value());
  Write("a", "0123456780");
  const auto other = FileSet::Open({file}, FromRoot());
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.error().message(), HasSubstr("other bytes than the job was submitted with"));
  Write("a", "012345678");
  const auto shorter = FileSet::Open({file}, FromRoot());
  ASSERT_FALSE(shorter.has_value());
  EXPECT_THAT(shorter.error().message(), HasSubstr("has 9 bytes here"));
}

// Touching a page of a map that the file no longer has would end the process.
TEST_F(FileSetTest, AFileThatShrinksIsAnErrorNotASignal) {
  const std::string path = Write("a", std::string(100'000, 'x'));
  auto source = Open(Describe("bytes", {path}), {10, 0, 0});
  EXPECT_EQ(Window(*source, 0, 11)[0], 'x');
  ASSERT_EQ(::truncate(path.c_str(), 5), 0);
  EXPECT_THAT(ReadFails(*source, "tokens", 1, 44, ir::DType::kI32, StatusCode::kDataLoss),
              HasSubstr("had 100000 bytes when the job started and has 5 now"));
}

TEST_F(FileSetTest, ManyFilesAreMappedAFewAtATime) {
  std::vector<ir::FileRef> files;
  for (size_t i = 0; i < FileSet::kMapped + 20; ++i) {
    files.push_back(
        InPlace(fmt::format("f{:03}", i), std::string(10, static_cast<char>('a' + i % 26))));
  }
  auto set = FileSet::Open(files, FromRoot());
  ASSERT_TRUE(set.has_value()) << set.error();
  EXPECT_EQ((*set)->mapped(), FileSet::kMapped);
  const auto first = (*set)->Get(0).value();  // held while others are mapped
  for (size_t i = 0; i < files.size(); ++i) {
    const auto map = (*set)->Get(i);
    ASSERT_TRUE(map.has_value()) << map.error();
    EXPECT_EQ(static_cast<char>((*map)->bytes()[9]), static_cast<char>('a' + i % 26));
  }
  EXPECT_EQ((*set)->mapped(), FileSet::kMapped);
  EXPECT_EQ(static_cast<char>(first->bytes()[0]), 'a');
  // The last ones stay mapped: used again, they are not opened again.
  const int opened = opened_;
  for (size_t i = files.size() - 10; i < files.size(); ++i) ASSERT_TRUE((*set)->Get(i).has_value());
  EXPECT_EQ(opened_, opened);
}

int64_t PeakMemoryKib() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// 100 GB that take no room on disk, and a token at its very end.
TEST_F(FileSetTest, AFileOfAHundredGigabytesCostsNoCopyAndLittleMemory) {
  constexpr int64_t kBytes = 100'000'000'000;
  const std::string path = dir_.File("huge.bin");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const bool sparse = ::ftruncate(fd, kBytes) == 0;
  const uint32_t token = 41;
  const bool written = sparse && ::pwrite(fd, &token, sizeof token, kBytes - 4) == sizeof token;
  ::close(fd);
  if (!written) GTEST_SKIP() << "the file system of " << dir_.path() << " has no such files";
  const int64_t before = PeakMemoryKib();
  const auto stream = Describe("uint32", {path}, 0.5);
  auto source = Open(stream, {1023, 1, 50'000});
  ASSERT_TRUE(source);
  const StreamCounts counts = source->Find("tokens")->counts();
  EXPECT_EQ(counts.items, kBytes / 4);
  EXPECT_EQ(counts.training_samples, (kBytes / 8 - 1) / 1023);
  for (int64_t n = 0; n < 100; ++n) Window(*source, n * 99'991, 1024);
  ir::DataStream tail = stream;
  tail.fields[0].slices = {{0, kBytes - 4096, 1024}};
  tail.validation_fraction = 0;
  auto end = Open(tail, {1023, 1, 50'000});
  ASSERT_TRUE(end);
  EXPECT_EQ(Window(*end, 0, 1024).back(), 41);
  EXPECT_LT(PeakMemoryKib() - before, 64 << 10);
}

// ---- Paths ----

class PathsTest : public DataFilesTest {};

TEST_F(PathsTest, AFileAFolderAndAGlobBecomeFilesInOrder) {
  for (const char* name : {"c/b.bin", "c/a.bin", "c/.hidden.bin", "c/x.txt", "c/deep/z.bin"}) {
    Write(name, "1");
  }
  const auto expand = [&](const std::string& path, const std::string& extension) {
    return ExpandPath(path, "", extension).value_or(std::vector<std::string>{"error"});
  };
  const std::string folder = dir_.File("c");
  EXPECT_THAT(expand(folder + "/x.txt", ".bin"), ElementsAre(folder + "/x.txt"));
  EXPECT_THAT(expand(folder, ".bin"), ElementsAre(folder + "/a.bin", folder + "/b.bin"));
  EXPECT_THAT(expand(folder, ""),
              ElementsAre(folder + "/a.bin", folder + "/b.bin", folder + "/x.txt"));
  EXPECT_THAT(expand(folder + "/*.bin", ""), ElementsAre(folder + "/a.bin", folder + "/b.bin"));
  EXPECT_THAT(expand(folder + "/[xb].*", ""), ElementsAre(folder + "/b.bin", folder + "/x.txt"));
  EXPECT_EQ(ExpandPath(folder + "/*.npy", "", "").error().code(), StatusCode::kNotFound);
  EXPECT_THAT(ExpandPath(folder, "", ".npy").error().message(), HasSubstr("has no .npy files"));
  EXPECT_EQ(ExpandPath("", "", "").error().code(), StatusCode::kInvalidArgument);
}

TEST_F(PathsTest, RelativePathsAreBelowTheJobFileFirst) {
  Write("job/book.txt", "1");
  const std::string folder = dir_.File("job");
  EXPECT_THAT(ExpandPath("book.txt", folder, "").value(), ElementsAre(folder + "/book.txt"));
  EXPECT_THAT(ExpandPath("*.txt", folder, "").value(), ElementsAre(folder + "/book.txt"));
  EXPECT_THAT(ExpandPath("../job/book.txt", folder, "").value(), ElementsAre(folder + "/book.txt"));
  EXPECT_EQ(ResolvePath("none.txt", folder), "none.txt");  // below the working folder
  EXPECT_EQ(ResolvePath(folder + "/book.txt", "/elsewhere"), folder + "/book.txt");
  EXPECT_THAT(
      ExpandPath("none.txt", folder, "").error().message(),
      AllOf(HasSubstr("none.txt"), HasSubstr("below " + folder), HasSubstr("No such file")));
}

// ---- Formats of tokens, as streams ----

class FormatsTest : public DataFilesTest {
 protected:
  static std::string Word(int32_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
};

TEST_F(FormatsTest, FilesOfLlmcAreOneStreamWithoutTheirHeaders) {
  const auto write = [&](const std::string& name, const std::vector<uint16_t>& tokens) {
    std::string file = Word(20240520) + Word(1) + Word(static_cast<int32_t>(tokens.size()));
    file.resize(1024, '\0');
    file.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
    return Write(name, file);
  };
  write("shards/train_000001.bin", {4, 5});
  write("shards/train_000000.bin", {1, 2, 3});
  Write("shards/readme.txt", "not data");
  auto source = Open(Describe("llm.c", {dir_.File("shards")}), {4, 0, 10});
  EXPECT_THAT(Window(*source, 0, 5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(DescribeFails("llm.c", {dir_.File("shards/readme.txt")}),
              AllOf(HasSubstr("readme.txt"), HasSubstr("too few")));
}

TEST_F(FormatsTest, AMegatronDataSetIsNamedByItsPrefixOrEitherFile) {
  const auto raw64 = [](uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  Write("m/set.bin", std::string("\x01\0\x02\0\x03\0\x04\0\x05\0", 10));
  Write("m/set.idx", std::string("MMIDIDX\0\0", 9) + raw64(1) + "\x08" + raw64(2) + raw64(3) +
                         Word(3) + Word(2) + raw64(0) + raw64(6) + raw64(0) + raw64(1) + raw64(2));
  for (const char* path : {"m/set", "m/set.bin", "m/set.idx", "m", "m/set*"}) {
    auto source = Open(Describe("megatron", {dir_.File(path)}), {4, 0, 10});
    ASSERT_TRUE(source) << path;
    EXPECT_THAT(Window(*source, 0, 5), ElementsAre(1, 2, 3, 4, 5)) << path;
  }
  Write("m/alone.bin", "12");
  EXPECT_THAT(DescribeFails("megatron", {dir_.File("m/alone.bin")}, StatusCode::kNotFound),
              HasSubstr("needs its .idx"));
}

TEST_F(FormatsTest, FilesOfOneStreamHaveOneTokenType) {
  std::string gpt2 = Word(20240520) + Word(1) + Word(0);
  std::string llama = Word(20240801) + Word(7) + Word(0);
  gpt2.resize(1024, '\0');
  llama.resize(1024, '\0');
  EXPECT_THAT(DescribeFails("llm.c", {Write("a.bin", gpt2), Write("b.bin", llama)}),
              AllOf(HasSubstr("b.bin"), HasSubstr("items of u32[]"), HasSubstr("have u16[]")));
}

}  // namespace
}  // namespace meshwright::data
