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
#include "base/utf8.h"
#include "worker/process_state.h"

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
    case MeshDoing::kSnapshot:
      return "while it took a snapshot";
    case MeshDoing::kReleasing:
      return "while it let go of the mesh";
  }
  return "somewhere";
}

// Cut where it does not fit; zeros behind it.
template <size_t kSize>
void PutText(std::string_view text, std::array<char, kSize>& into) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), length, into.begin());
  std::fill(into.begin() + static_cast<ptrdiff_t>(length), into.end(), '\0');
}

template <size_t kSize>
std::string CutText(const std::array<char, kSize>& text) {
  return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

}  // namespace

std::string GroupMark::name() const { return CutText(name_); }

GroupMark* DeviceMark::Group(std::string_view name) {
  const uint32_t used = groups_used_.load(std::memory_order_relaxed);
  MW_CHECK(used <= kMostGroups) << used << " groups in a mark";
  std::array<char, sizeof(GroupMark::name_)> cut{};
  PutText(name, cut);
  for (uint32_t i = 0; i < used; ++i) {
    if (groups_[i].name_ == cut) return &groups_[i];
  }
  if (used == kMostGroups) return nullptr;
  groups_[used].name_ = cut;
  groups_used_.store(used + 1, std::memory_order_release);
  return &groups_[used];
}

void DeviceMark::Enter(int rank, std::string_view program, int64_t step) {
  PutText(program, program_);
  if (thread_.load(std::memory_order_relaxed) == 0) {
    thread_.store(::gettid(), std::memory_order_relaxed);
  }
  steps_begun_.store(steps_begun_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  entered_ns_.store(SystemClock().NowNs(), std::memory_order_relaxed);
  rank_.store(rank, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  instruction_.store(0, std::memory_order_relaxed);
  in_step_.store(1, std::memory_order_relaxed);
  MW_FAILPOINT("executor.step");
}

std::string DeviceMark::program() const { return CutText(program_); }

proto::RankMarks DeviceMark::Read(int64_t now_ns) const {
  constexpr int64_t kNsPerMs = 1'000'000;
  proto::RankMarks marks;
  marks.rank = rank();
  marks.in_step = in_step();
  marks.program = AsUtf8(program(), sizeof(program_));
  marks.step = step();
  marks.steps_begun = steps_begun_.load(std::memory_order_relaxed);
  marks.instruction = instruction();
  const int64_t entered_ns = entered_ns_.load(std::memory_order_relaxed);
  marks.age_ms = std::max<int64_t>(0, now_ns - entered_ns) / kNsPerMs;
  marks.awaits_rows = reading_.load(std::memory_order_relaxed) > 0;
  const uint32_t groups = std::min<uint32_t>(groups_used_.load(std::memory_order_acquire),
                                             static_cast<uint32_t>(kMostGroups));
  for (uint32_t i = 0; i < groups; ++i) {
    // Entered behind done: a call that comes meanwhile is seen as one under way.
    const int64_t done = groups_[i].done();
    marks.groups.push_back({AsUtf8(groups_[i].name(), sizeof(GroupMark::name_)),
                            std::max(groups_[i].entered(), done), done});
  }
  return marks;
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
  static constexpr auto kPoints =
      std::to_array<const char*>({"executor.idle", "executor.loading", "executor.connecting",
                                  "executor.running", "executor.reading", "executor.writing",
                                  "executor.saving", "executor.snapshot", "executor.releasing"});
  static_assert(kPoints.size() == static_cast<size_t>(MeshDoing::kReleasing) + 1);
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

proto::MeshMarks MeshRecord::Read(pid_t process, int64_t now_ns) const {
  proto::MeshMarks marks;
  marks.doing = DoingText(static_cast<MeshDoing>(shared_->doing.load()));
  marks.cpu_ms = ReadProcess(process).cpu_ms;
  marks.pid = process;
  for (const DeviceMark& mark : shared_->marks) {
    if (mark.thread() == 0 || marks.ranks.size() == proto::kMostMarkedRanks) continue;
    proto::RankMarks& rank = marks.ranks.emplace_back(mark.Read(now_ns));
    rank.state = ReadThread(process, mark.thread()).state;
  }
  return marks;
}

}  // namespace meshwright::worker
