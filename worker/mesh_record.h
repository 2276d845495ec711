// MeshRecord: where an executor is, in memory that outlives it: its supervisor reads after the
// executor's death what it did last.
//
// A mark of a device is three numbers and a name, stored without a lock by the device's thread,
// once per instruction; on a GPU it says what the device was given last, and the device may be
// behind that.
//
// Thread rule: each mark is written by one thread; Last() from any thread of any process, best when
// nobody writes any more. Ownership: owns mapping and descriptor.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::worker {

class DeviceMark {
 public:
  // A step of a program begins; before its first instruction.
  void Enter(int rank, std::string_view program, int64_t step);
  void At(int64_t instruction) { instruction_.store(instruction, std::memory_order_relaxed); }
  // No step is under way.
  void Leave() { in_step_.store(0, std::memory_order_relaxed); }

  bool in_step() const { return in_step_.load(std::memory_order_relaxed) != 0; }
  int rank() const { return rank_.load(std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  int64_t instruction() const { return instruction_.load(std::memory_order_relaxed); }
  std::string program() const;

 private:
  std::atomic<int32_t> in_step_;
  std::atomic<int32_t> rank_;
  std::atomic<int64_t> step_;
  std::atomic<int64_t> instruction_;
  std::array<char, 40> program_;  // cut where it is longer; zeros behind it
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
