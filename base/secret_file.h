// Files that only their owner may read: tokens, private keys.
//
// A secret that others of the machine can read is none, so such a file is refused when it is read
// and not believed: mode 0600 or less when it belongs to the user of this process; 0640 or less
// when it belongs to root (as secrets that a container or a service manager hands in do).
//
// Thread rule: thread-safe (distinct paths).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright {

// The bytes of the file. Errors: kPermissionDenied naming the file, its mode and the command that
// mends it when others could read it; those of ReadFile.
Result<std::string> ReadSecretFile(const std::string& path);

// As WriteFileAtomic, with mode 0600.
Status WriteSecretFile(const std::string& path, std::string_view bytes);

// Makes the folder (0700) and its parents; one that is there is checked. Errors: kPermissionDenied
// when others than its owner may write to it, or it belongs to another user than this one or root.
Status MakeSecretDir(const std::string& path);

// OK when nobody but the owner can replace what lies in this folder. Errors: as MakeSecretDir,
// kNotFound.
Status CheckSecretDir(const std::string& path);

}  // namespace meshwright
