#include "worker/mesh_record.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/os_error.h"

namespace meshwright::worker {
namespace {

// More are no help to a reader.
constexpr size_t kMostNamed = 8;

const char* DoingText(MeshDoing doing) {
  switch (doing) {
    case MeshDoing::kIdle:
      return "while it waited for orders";
    case MeshDoing::kLoading:
      return "while it loaded the programs";
    case MeshDoing::kConnecting:
      return "while it connected to the other members";
    case MeshDoing::kRunning:
      return "in a launch, between two steps";
    case MeshDoing::kReading:
      return "while it read the state";
    case MeshDoing::kWriting:
      return "while it wrote the state";
    case MeshDoing::kSaving:
      return "while it sent the weights";
    case MeshDoing::kReleasing:
      return "while it let go of the mesh";
  }
  return "somewhere";
}

}  // namespace

void DeviceMark::Enter(int rank, std::string_view program, int64_t step) {
  const size_t length = std::min(program.size(), program_.size() - 1);
  std::copy_n(program.begin(), length, program_.begin());
  std::fill(program_.begin() + static_cast<ptrdiff_t>(length), program_.end(), '\0');
  rank_.store(rank, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  instruction_.store(0, std::memory_order_relaxed);
  in_step_.store(1, std::memory_order_relaxed);
  MW_FAILPOINT("executor.step");
}

std::string DeviceMark::program() const {
  return {program_.begin(), std::find(program_.begin(), program_.end(), '\0')};
}

std::string MeshPlace::ToString() const {
  if (devices.empty()) return DoingText(doing);
  std::string text =
      fmt::format("in step {} of program '{}':", devices[0].step, devices[0].program);
  for (size_t i = 0; i < std::min(devices.size(), kMostNamed); ++i) {
    text += fmt::format("{} rank {} at instruction {}", i == 0 ? "" : ",", devices[i].rank,
                        devices[i].instruction);
  }
  if (devices.size() > kMostNamed) {
    text += fmt::format(" and {} more", devices.size() - kMostNamed);
  }
  return text;
}

Result<MeshRecord> MeshRecord::Create() {
  UniqueFd fd(::memfd_create(kName, MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), sizeof(Shared)) != 0) {
    return Fail(OsError(errno, "make the record of an executor"));
  }
  return Map(std::move(fd));
}

Result<MeshRecord> MeshRecord::Open(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size != sizeof(Shared)) {
    return Fail(InvalidArgument(fmt::format("descriptor {} is no record", fd.get())));
  }
  return Map(std::move(fd));
}

Result<MeshRecord> MeshRecord::Map(UniqueFd fd) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return Fail(OsError(errno, "map the record of an executor"));
  MeshRecord record;
  record.fd_ = std::move(fd);
  // Zeros are a record in which nothing has happened.
  record.shared_ = static_cast<Shared*>(memory);
  return record;
}

MeshRecord::~MeshRecord() {
  if (shared_ != nullptr) (void)::munmap(shared_, sizeof(Shared));
}

void MeshRecord::SetDoing(MeshDoing doing) {
  MW_CHECK(shared_ != nullptr) << "a record without memory";
  shared_->doing.store(static_cast<int32_t>(doing));
  constexpr const char* kPoints[] = {"executor.idle",    "executor.loading",  "executor.connecting",
                                     "executor.running", "executor.reading",  "executor.writing",
                                     "executor.saving",  "executor.releasing"};
  MW_FAILPOINT(kPoints[static_cast<size_t>(doing)]);
}

DeviceMark* MeshRecord::mark(size_t index) {
  MW_CHECK(shared_ != nullptr) << "a record without memory";
  return index < kMostDevices ? &shared_->marks[index] : nullptr;
}

MeshPlace MeshRecord::Last() const {
  MeshPlace place;
  const int32_t doing = shared_->doing.load();
  if (doing >= 0 && doing <= static_cast<int32_t>(MeshDoing::kReleasing)) {
    place.doing = static_cast<MeshDoing>(doing);
  }
  for (const DeviceMark& mark : shared_->marks) {
    if (!mark.in_step()) continue;
    place.devices.push_back({mark.rank(), mark.program(), mark.step(), mark.instruction()});
  }
  std::sort(place.devices.begin(), place.devices.end(), [](const auto& a, const auto& b) {
    return std::tie(a.step, a.instruction, a.rank) < std::tie(b.step, b.instruction, b.rank);
  });
  return place;
}

}  // namespace meshwright::worker
