// Files become a stream: their headers are read, their contents are not.
//
//   format       files                               stream
//   bytes        text                                tokens, one per byte
//   uint16/32    little-endian tokens                tokens
//   llm.c        .bin with a header of 1024 bytes    tokens
//   megatron     .bin with an .idx beside it         tokens, all documents
//   safetensors  .safetensors: tensors with the      records, a field for each tensor
//                same first dim, the rows
//   npy          .npy: an array for each field       records; "x=a.npy" names the field, else it
//                                                    is the file's name without .npy
//
// Files of a stream are taken as if they were one, in the order given, those of a glob or folder in
// the order of their paths. Rows belong together: every field has as many.
//
// Thread rule: reads files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"

namespace meshwright::data {

struct FilesRequest {
  std::string stream = "tokens";
  std::string format = "bytes";
  std::vector<std::string> paths;  // files, folders, globs (data/paths.h)
  std::vector<std::string> validation_paths = {};
  double validation_fraction = 0.05;  // without validation paths
  std::string folder = {};            // where relative paths are looked for first
};

// The names of the formats, for tables of keys.
const std::vector<std::string>& FormatNames();
bool IsTokenFormat(const std::string& format);

// The stream of these files. Its files have a name, by which this process can open them, and a
// size; the client that submits it says how workers get them.
// Errors: kNotFound, kPermissionDenied; kInvalidArgument naming file and field: an unknown format,
// a header that is damaged, files that do not fit together.
Result<ir::DataStream> DescribeFiles(const FilesRequest& request);

}  // namespace meshwright::data
