// The pieces of crash-safe writing, for writers that keep a file open: base/file.h writes whole
// files.
//
// Errors name the path, with the codes of base/file.h. Thread rule: thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace meshwright {

// All bytes, however many calls it takes. `path` is for the message.
Status WriteAll(int fd, std::string_view bytes, const std::string& path);

// Makes the renames and removals in this folder durable.
Status SyncFolder(const std::string& folder);

}  // namespace meshwright
