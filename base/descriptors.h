// How many descriptors (files, sockets) this process may have open.
//
// The soft limit that a shell gives, mostly 1024, is a tradition of select(); a server that polls
// wants the hard one.
//
// Thread rule: thread-safe, but for the limit, which is the process's.
#pragma once

#include <cstdint>

namespace meshwright {

// Raises the soft limit to the hard one, or to 1,048,576 where that is larger. Returns the limit in
// force. Children inherit it.
int64_t RaiseDescriptorLimit();

// The soft limit in force.
int64_t DescriptorLimit();

}  // namespace meshwright
