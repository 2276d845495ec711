// Texts become files of tokens, once: what a job reads whose data are text or JSONL.
//
// Each file is cut into parts of a few MiB, at the ends of documents where it has any. A part
// becomes a file of its own, named by what it was made of: the bytes of the part, the tokenizer,
// the format. So parts are made by all threads at once, what is there is not made again, an
// interrupted run goes on where it ended, and a text that grew costs its new parts only.
//
// They are documents one behind the other, or rows that hold whole documents (cli/token_rows.h).
//
// Thread rule: reads and writes files, on threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/documents.h"
#include "cli/token_rows.h"

namespace meshwright::cli {

struct TokenFilesRequest {
  std::vector<std::string> files;
  DocumentRules documents;
  std::optional<RowShape> rows;  // else tokens without borders
  std::string cache;             // folder, which is made
  int64_t part_bytes = int64_t{16} << 20;
  // Bytes of all texts that are done; called on any thread, one call at a time.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct TokenFiles {
  // "uint16", or "uint32" of a large vocabulary; "safetensors" of rows.
  std::string format;
  std::vector<std::string> paths;  // in the order of the texts
  int64_t made = 0;                // parts; the others were there
};

// Errors: kInvalidArgument naming file and line, or the byte: no UTF-8, no JSON, no field; those of
// Tokenizer::Load, ChatTemplate::Load, reading and writing.
Result<TokenFiles> MakeTokenFiles(const TokenFilesRequest& request);

// Where the parts of these files are kept: .meshwright-tokens in the folder of the first one, which
// workers that read the texts can read, too; where that cannot be written CacheDir("tokens").
std::string TokenCacheOf(const std::string& file);

}  // namespace meshwright::cli
