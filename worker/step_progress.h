// StepProgress: how far a device has got with the list of a step, and how much of what it was given
// is still before it.
//
// The device stores marks in memory that the host sees: 1 + the position in the list of the last
// item that a queue is through. A launch is a call that takes a place in the driver's own queue; a
// recording is one, however much it holds.
//
// Thread rule: one thread; the marks are the device's to write meanwhile. Ownership: the memory of
// the marks outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace meshwright::worker {

class StepProgress {
 public:
  StepProgress() = default;
  // marks: one per queue.
  StepProgress(std::span<int32_t> marks, size_t items);

  // Before a step. REQUIRES empty queues.
  void Start();
  // Items [begin, end) of the list were given to the queue as so many launches.
  void Give(int queue, size_t begin, size_t end, int64_t launches);
  // The queue was seen to be empty.
  void Empty(int queue);

  // Launches that were given and are not known to be done; of all queues.
  int64_t outstanding() const;
  // The queue is through its items of [0, done()).
  size_t done(int queue) const;
  // It was given its items of [0, given()).
  size_t given(int queue) const { return queues_[static_cast<size_t>(queue)].items; }
  // Changes when any queue gets further.
  int64_t Sum() const;

 private:
  struct Given {
    int64_t launches = 0;
    int64_t known_done = 0;  // launches
    size_t items = 0;
  };
  std::span<int32_t> marks_;
  std::vector<Given> queues_;
  std::vector<int64_t> launches_;  // per item: given to its queue up to and with it
};

}  // namespace meshwright::worker
