// MeshRecord: where an executor is, in memory that outlives it: its supervisor reads after the
// executor's death what it did last.
//
// A mark of a device says at which instruction it is and since when, and of each group how many
// calls of collectives it has entered and left: numbers that the device's threads store without a
// lock, for a group one of them at a time. On a GPU it says what the device was given last, and the
// device may be behind that; its collectives are not counted.
//
// Thread rule: each mark is written by one thread, Reads() by several; it is read from any thread
// of any process. What is read while the device goes on may be of two moments: who judges by it
// looks again. Ownership: owns mapping and descriptor.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "proto/mesh_marks.h"

namespace meshwright::worker {

// Calls of the collectives of a group, by one member.
class GroupMark {
 public:
  void Enter() { Add(entered_); }
  void Leave() { Add(done_); }
  int64_t entered() const { return entered_.load(std::memory_order_relaxed); }
  int64_t done() const { return done_.load(std::memory_order_relaxed); }
  std::string name() const;

 private:
  friend class DeviceMark;
  static void Add(std::atomic<int64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::array<char, 96> name_;  // cut where it is longer; zeros behind it
  std::atomic<int64_t> entered_;
  std::atomic<int64_t> done_;
};

class DeviceMark {
 public:
  static constexpr size_t kMostGroups = proto::kMostMarkedGroups;

  // The mark of a group that the device is in; null beyond kMostGroups. Again: the same.
  GroupMark* Group(std::string_view name);
  // A step of a program begins; before its first instruction. On the device's own thread.
  void Enter(int rank, std::string_view program, int64_t step);
  void At(int64_t instruction) {
    entered_ns_.store(SystemClock().NowNs(), std::memory_order_relaxed);
    instruction_.store(instruction, std::memory_order_relaxed);
  }
  // Rows are being read, or no longer; threads of a team may at the same time.
  void Reads(bool begin) { reading_.fetch_add(begin ? 1 : -1, std::memory_order_relaxed); }
  // No step is under way.
  void Leave() { in_step_.store(0, std::memory_order_relaxed); }

  bool in_step() const { return in_step_.load(std::memory_order_relaxed) != 0; }
  int rank() const { return rank_.load(std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  int64_t instruction() const { return instruction_.load(std::memory_order_relaxed); }
  std::string program() const;
  // Of the device's thread; 0: it has not begun a step.
  int32_t thread() const { return thread_.load(std::memory_order_relaxed); }
  // All of it; `state` is not known here. now_ns: of the system's clock.
  proto::RankMarks Read(int64_t now_ns) const;

 private:
  std::atomic<int32_t> in_step_;
  std::atomic<int32_t> rank_;
  std::atomic<int64_t> step_;
  std::atomic<int64_t> instruction_;
  std::atomic<int64_t> entered_ns_;   // the instruction
  std::atomic<int64_t> steps_begun_;  // of all programs
  std::atomic<int32_t> thread_;
  std::atomic<int32_t> reading_;
  std::array<char, 40> program_;  // cut where it is longer; zeros behind it
  std::atomic<uint32_t> groups_used_;
  std::array<GroupMark, kMostGroups> groups_;
};

// What an executor does with its mesh.
enum class MeshDoing : int32_t {
  kIdle,
  kLoading,
  kConnecting,
  kRunning,
  kReading,
  kWriting,
  kSaving,
  kSnapshot,
  kReleasing
};

// A device in a step.
struct DevicePlace {
  int rank = -1;
  std::string program;
  int64_t step = -1;
  int64_t instruction = -1;
};
struct MeshPlace {
  MeshDoing doing = MeshDoing::kIdle;
  std::vector<DevicePlace> devices;  // those in a step, who is farthest behind first

  // "while it loaded the programs", "in step 7 of program 'step': rank 0 at instruction 12".
  std::string ToString() const;
};

class MeshRecord {
 public:
  // The name of its memory, as /proc shows it.
  static constexpr const char* kName = "mw-executor-record";
  static constexpr size_t kMostDevices = 64;

  MeshRecord() = default;
  MeshRecord(MeshRecord&& other) noexcept
      : fd_(std::move(other.fd_)), shared_(std::exchange(other.shared_, nullptr)) {}
  MeshRecord& operator=(MeshRecord&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~MeshRecord();

  // Errors: kResourceExhausted.
  static Result<MeshRecord> Create();
  // That of another process. Errors: kInvalidArgument: it is none.
  static Result<MeshRecord> Open(UniqueFd fd);

  int descriptor() const { return fd_.get(); }
  void SetDoing(MeshDoing doing);
  // Of local device `index`; null beyond kMostDevices.
  DeviceMark* mark(size_t index);
  MeshPlace Last() const;
  // All devices that have begun a step; process: whose record it is.
  proto::MeshMarks Read(pid_t process, int64_t now_ns) const;

 private:
  struct Shared {
    std::atomic<int32_t> doing;
    std::array<DeviceMark, kMostDevices> marks;
  };

  static Result<MeshRecord> Map(UniqueFd fd);

  UniqueFd fd_;
  Shared* shared_ = nullptr;
};

}  // namespace meshwright::worker
