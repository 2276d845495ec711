// What every fabric asks of its arguments.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/communicator.h"

namespace meshwright::collective {

// Errors of all: kInvalidArgument with what was given and what is allowed.
Status CheckOptions(const FabricOptions& options);
Status CheckGroup(const FabricOptions& options, const std::string& name,
                  const std::vector<int>& ranks);

struct ChannelArguments {
  const std::string& name;
  int from_rank = 0;
  int to_rank = 0;
  int capacity = 0;
  int64_t max_message_bytes = 0;
};
Status CheckChannel(const FabricOptions& options, const ChannelArguments& channel);

}  // namespace meshwright::collective
