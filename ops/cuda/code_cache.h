// CodeCache: compiled kernels by their source, in this process and on disk.
//
// A program of a big model has hundreds of chains and a few dozen texts; a text takes NVRTC a tenth
// of a second or more. A binary's name on disk is the SHA-256 of everything that it depends on:
// compiler, architecture, options, source. An entry is
//   "meshwright-code 1 <bytes> <SHA-256 of the bytes>\n" <bytes>
// written beside its place and renamed, so that processes may share a folder. An entry that is not
// of this form, or damaged, is compiled anew and replaced. A disk that cannot be written costs
// time only: it is logged once.
//
// Thread rule: thread-safe; two threads that miss the same source both compile it. Ownership: what
// is loaded stays loaded until the last KernelCode of it is gone.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "ops/cuda/compiler.h"

namespace meshwright::ops::cuda {

// A loaded binary.
class KernelCode {
 public:
  KernelCode(Compiler& compiler, ModuleHandle module) : compiler_(compiler), module_(module) {}
  ~KernelCode() { (void)compiler_.Unload(module_); }
  KernelCode(const KernelCode&) = delete;
  KernelCode& operator=(const KernelCode&) = delete;

  // Errors: kInternal naming kernel and code.
  Result<FunctionHandle> Find(const char* kernel) const;

 private:
  Compiler& compiler_;
  const ModuleHandle module_;
};

struct CodeCacheOptions {
  // Empty: $MESHWRIGHT_CACHE_DIR, else ~/.cache/meshwright/cuda; without a home none.
  std::string directory = {};
  bool use_disk = true;
};

class CodeCache {
 public:
  // The compiler outlives the cache and all that is loaded.
  explicit CodeCache(Compiler& compiler, CodeCacheOptions options = {});

  // Errors: the compiler's; kInternal: the binary cannot be loaded.
  Result<std::shared_ptr<const KernelCode>> Get(const SourceCode& code);

  // Where the binary of the source is, or would be; empty without a disk.
  std::string PathOf(const SourceCode& code) const;
  Compiler& compiler() const { return compiler_; }

 private:
  std::string KeyOf(const SourceCode& code) const;
  std::string PathOfKey(const std::string& key) const;
  // Empty: there is no entry, or it is damaged.
  std::string ReadEntry(const std::string& key);
  void WriteEntry(const std::string& key, const std::string& binary);

  Compiler& compiler_;
  const std::string directory_;
  const std::string version_;
  std::atomic<bool> told_{false};  // that the disk cannot be written
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<const KernelCode>> loaded_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::ops::cuda
