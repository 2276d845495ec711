// The two ends of a Channel, each over a pipe whose slots are the channel's capacity.
//
// Thread rule and ownership: as Channel.
#pragma once

#include <string>

#include "collective/cpu/group_base.h"
#include "collective/cpu/pipe.h"

namespace meshwright::collective {

class SendChannel final : public Channel {
 public:
  SendChannel(const std::string& name, int to_rank, int64_t max_message_bytes,
              const FabricContext& context)
      : context_(context),
        pipe_("channel " + name, to_rank, context),
        max_message_bytes_(max_message_bytes) {}
  PipeSender& pipe() { return pipe_; }

  Status Send(const void* data, int64_t bytes) override;
  Status Receive(void* data, int64_t bytes) override;
  Counters counters() const override { return counters_.Read(); }

 private:
  const FabricContext& context_;
  PipeSender pipe_;
  const int64_t max_message_bytes_;
  uint64_t sequence_ = 0;
  CounterCell counters_;
};

class ReceiveChannel final : public Channel {
 public:
  ReceiveChannel(const std::string& name, int from_rank, const FabricContext& context)
      : context_(context), pipe_("channel " + name, from_rank, context) {}
  PipeReceiver& pipe() { return pipe_; }

  Status Send(const void* data, int64_t bytes) override;
  Status Receive(void* data, int64_t bytes) override;
  Counters counters() const override { return counters_.Read(); }

 private:
  const FabricContext& context_;
  PipeReceiver pipe_;
  CounterCell counters_;
};

}  // namespace meshwright::collective
