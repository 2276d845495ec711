// Paths of a job file become files: one file, a folder, a glob.
//
//   "book.txt"         the file
//   "corpus/"          its plain files, hidden ones left out
//   "corpus/*.bin"     what matches
//
// Files come in the order of their paths as bytes, so numbers in them want leading zeros. A
// relative path is looked for below `folder` (that of the job file) first, then below the working
// folder. Thread rule: reads the file system.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::data {

// The path as it can be opened from here: below `folder` where that has it, else as it is. `folder`
// may be empty. Absolute paths and those that nothing matches stay as they are.
std::string ResolvePath(const std::string& path, const std::string& folder);

// The files that a path names. `extension` (".bin", or "" for any): of the files that are taken of
// a folder. Errors: kNotFound naming where it was looked for; kInvalidArgument: empty, or a folder
// without such files.
Result<std::vector<std::string>> ExpandPath(const std::string& path, const std::string& folder,
                                            const std::string& extension);

}  // namespace meshwright::data
