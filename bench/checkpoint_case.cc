#include "bench/checkpoint_case.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/unique_fd.h"
#include "checkpoint/cover.h"
#include "checkpoint/digest.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"

namespace meshwright::bench {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kColumns = 4096;
constexpr int64_t kTensorBytes = kRows * kColumns * 4;

double SecondsSince(int64_t begin_ns) {
  return static_cast<double>(SystemClock().NowNs() - begin_ns) * 1e-9;
}

// A share of the rows of every tensor.
ir::Box ShareOf(int part, int parts) {
  const int64_t begin = kRows * part / parts;
  return {{begin, 0}, {kRows * (part + 1) / parts - begin, kColumns}};
}

// A checkpoint that as many ranks as there are readers wrote, each rank the share of another one's
// reader: nobody reads whole boxes.
Result<std::string> WriteCheckpoint(const std::string& folder, int64_t bytes, int ranks) {
  const std::string temporary = checkpoint::TemporaryName(1, 1);
  checkpoint::Shards written;
  std::vector<std::byte> memory(static_cast<size_t>(kTensorBytes));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 31 >> 3);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<checkpoint::BoxBytes> boxes;
    const ir::Box box = ShareOf(rank, ranks);
    const auto size = static_cast<size_t>(checkpoint::Volume(box) * 4);
    for (int64_t tensor = 0; tensor * kTensorBytes < bytes; ++tensor) {
      boxes.push_back({"layer." + std::to_string(tensor) + ".weight",
                       {ir::DType::kF32, {kRows, kColumns}},
                       ir::MemoryKind::kWeights,
                       box,
                       std::span(memory).first(size)});
    }
    MW_ASSIGN_OR_RETURN(const auto images, checkpoint::MakeShards(rank, boxes));
    for (const checkpoint::ShardImage& image : images) {
      MW_TRY(checkpoint::WriteShard(folder + "/" + temporary, image));
      checkpoint::AddShard(written, image);
    }
  }
  checkpoint::Manifest manifest;
  manifest.step = 1;
  MW_TRY(checkpoint::AddShards(manifest, written));
  MW_TRY(checkpoint::Commit(folder, temporary, manifest, {}));
  return folder + "/" + checkpoint::StepName(1);
}

Status Load(const std::string& path, int part, int parts) {
  MW_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::OpenFolder(path));
  // Cut otherwise than it was written.
  ir::Box box = ShareOf(part, parts);
  box.offset[0] = std::max<int64_t>(0, box.offset[0] - kRows / parts / 2);
  std::vector<std::byte> device(static_cast<size_t>(checkpoint::Volume(box) * 4));
  for (const auto& [name, tensor] : reader->manifest().tensors) {
    MW_TRY(reader->ReadBox(name, tensor.type, box, device));
  }
  return OkStatus();
}

Status ReadOnly(const std::string& path, const std::vector<checkpoint::StoredFile>& files, int part,
                int parts) {
  std::vector<char> buffer(1 << 20);
  for (const checkpoint::StoredFile& file : files) {
    const UniqueFd fd(::open((path + "/" + file.name).c_str(), O_RDONLY | O_CLOEXEC));
    int64_t at = file.bytes * part / parts;
    const int64_t end = file.bytes * (part + 1) / parts;
    while (at < end) {
      const auto want = std::min<size_t>(buffer.size(), static_cast<size_t>(end - at));
      const ssize_t got = ::pread(fd.get(), buffer.data(), want, at);
      if (got <= 0) return DataLoss("cannot read " + file.name);
      at += got;
    }
  }
  return OkStatus();
}

// The digests of a share of `bytes`, of memory that stays in the cache.
Status DigestOnly(int64_t bytes, int parts) {
  constexpr int64_t kCachedBytes = 64 << 10;
  const std::vector<std::byte> cached(static_cast<size_t>(kCachedBytes), std::byte{7});
  checkpoint::DigestStream digest;
  for (int64_t done = 0; done < bytes / parts; done += kCachedBytes) digest.Add(cached);
  return digest.End() == checkpoint::Digest{} ? DataLoss("a digest of zeros") : OkStatus();
}

// Seconds until the last of `count` processes has done its part.
Result<double> InProcesses(int count, const std::function<Status(int)>& work) {
  const int64_t begin_ns = SystemClock().NowNs();
  std::vector<pid_t> pids;
  for (int part = 0; part < count; ++part) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::_exit(work(part).ok() ? 0 : 1);
    }
    pids.push_back(pid);
  }
  bool ok = true;
  for (const pid_t pid : pids) {
    int status = 0;
    ok = ::waitpid(pid, &status, 0) == pid && status == 0 && ok;
  }
  if (!ok) return Fail(DataLoss("a reader failed"));
  return SecondsSince(begin_ns);
}

}  // namespace

Result<LoadCase> RunLoadCase(const std::string& folder, int64_t bytes, int readers, int rounds) {
  MW_ASSIGN_OR_RETURN(const std::string path, WriteCheckpoint(folder, bytes, readers));
  MW_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::OpenFolder(path));
  const std::vector<checkpoint::StoredFile> files = reader->manifest().files;
  LoadCase result;
  for (const checkpoint::StoredFile& file : files) result.bytes += file.bytes;
  const auto load = [&](int part) { return Load(path, part, readers); };
  const auto read = [&](int part) { return ReadOnly(path, files, part, readers); };
  const auto digest = [&](int) { return DigestOnly(result.bytes, readers); };
  std::vector<double> loads;
  std::vector<double> reads;
  std::vector<double> digests;
  for (int round = 0; round < rounds; ++round) {
    MW_ASSIGN_OR_RETURN(const double load_s, InProcesses(readers, load));
    MW_ASSIGN_OR_RETURN(const double read_s, InProcesses(readers, read));
    MW_ASSIGN_OR_RETURN(const double digest_s, InProcesses(readers, digest));
    loads.push_back(load_s);
    reads.push_back(read_s);
    digests.push_back(digest_s);
  }
  result.load_seconds = Median(loads);
  result.read_seconds = Median(reads);
  result.digest_seconds = Median(digests);
  return result;
}

double CoverSeconds(int64_t boxes, int rounds) {
  // A grid of uneven boxes, in an order that is none.
  constexpr int64_t kAcross = 250;
  const int64_t down = boxes / kAcross;
  const ir::Dims dims{3 * down, 5 * kAcross};
  std::vector<ir::Box> cover;
  for (int64_t i = 0; i < down * kAcross; ++i) {
    const int64_t box = i * 7919 % (down * kAcross);
    cover.push_back({{box / kAcross * 3, box % kAcross * 5}, {3, 5}});
  }
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const int64_t begin_ns = SystemClock().NowNs();
    MW_CHECK(checkpoint::CheckExactCover(dims, cover).ok()) << "the boxes cover the tensor";
    seconds.push_back(SecondsSince(begin_ns));
  }
  return Median(seconds);
}

}  // namespace meshwright::bench
