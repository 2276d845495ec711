// The ends of a channel whose messages go through NCCL.
//
// Each end has a wire, a queue of its own; the sender has a ring of `capacity` slots on its device:
//
//   sender    compute: wait freed(slot), copy tensor -> slot, record copied(slot)
//             wire:    wait copied(slot), ncclSend slot,      record freed(slot)
//   receiver  compute: record reached
//             wire:    wait reached, ncclRecv into the tensor, record arrived
//             compute: wait arrived
//
// So the calls return at once, and the sender's compute queue stands still only while `capacity`
// messages are on their way. A receive's kernel, which holds a part of the GPU while it waits, does
// not start before the work that was given before it is done: then nothing there could use that
// part, and a tensor may be written in place.
//
// No deadlock comes of it: a receive needs what precedes it in its list, and its send; a send
// needs what precedes it in its list, and the receive of `capacity` messages before. Those are the
// needs of blocking calls on CPUs, so that lists that end there end here, 1F1B and interleaved
// ones, too.
//
// "The data may be overwritten" by work that is given to the compute
// queue later. NCCL does not carry lengths: ends that disagree about one are not noticed.
// Empty messages are not sent.
//
// Thread rule: as Channel; Send() and Receive() use the device's compute queue. Ownership: as
// Channel; memory and queues belong to the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/cpu/group_base.h"
#include "collective/nccl/comm.h"
#include "collective/nccl/setup.h"

namespace meshwright::collective::nccl {

class NcclChannel : public Channel {
 public:
  struct Shape {
    std::string name;
    int capacity = 0;
    int64_t max_message_bytes = 0;
  };
  NcclChannel(Context& context, const Local& local, Shape shape)
      : context_(context), local_(local), shape_(std::move(shape)) {}

  // Of Connect(): takes queue, events and memory.
  Status Attach(Comm* comm);
  // Waits until everything sent was taken, for an orderly end. `interrupted`: see Queue::Finish().
  Status Drain(const HostDeadline& deadline, FunctionRef<Status()> interrupted);
  // Gives memory and queue back. `leak`: forgets them without a word to the device, which still
  // uses them.
  virtual void Release(bool leak);

  Status Send(const void* data, int64_t bytes) override;
  Status Receive(void* data, int64_t bytes) override;
  Counters counters() const override { return counters_.Read(); }
  const std::string& name() const { return shape_.name; }

 protected:
  struct Slot {
    std::byte* data = nullptr;             // null at the receiver: the tensor is the slot
    std::unique_ptr<device::Event> full;   // copied or arrived
    std::unique_ptr<device::Event> empty;  // freed or reached
    bool used = false;
  };
  virtual Status MakeSlots() = 0;
  Status AddSlot(std::byte* data);
  // Puts the work of one message into the queues.
  virtual Status Move(Slot& slot, const void* data, int64_t bytes) = 0;
  Status Run(const void* data, int64_t bytes, bool sends);

  Context& context() const { return context_; }
  const Shape& shape() const { return shape_; }
  device::Device& device() const { return *local_.device; }
  device::Queue& compute() const { return local_.device->queue(); }
  device::Queue& wire() const { return *wire_; }
  Comm& comm() const { return *comm_; }

 private:
  Status Check(const void* data, int64_t bytes) const;

  Context& context_;
  const Local& local_;
  const Shape shape_;
  Comm* comm_ = nullptr;
  std::vector<Slot> slots_;
  std::unique_ptr<device::Queue> wire_;
  int64_t messages_ = 0;
  CounterCell counters_;
};

class NcclSender final : public NcclChannel {
 public:
  using NcclChannel::NcclChannel;
  Status Receive(void* data, int64_t bytes) override;
  void Release(bool leak) override;

 private:
  Status MakeSlots() override;
  Status Move(Slot& slot, const void* data, int64_t bytes) override;

  std::unique_ptr<device::Memory> ring_;
};

class NcclReceiver final : public NcclChannel {
 public:
  using NcclChannel::NcclChannel;
  Status Send(const void* data, int64_t bytes) override;

 private:
  Status MakeSlots() override { return AddSlot(nullptr); }
  Status Move(Slot& slot, const void* data, int64_t bytes) override;
};

}  // namespace meshwright::collective::nccl
