#include "ops/cpu/dnnl_engine.h"

namespace meshwright::ops::cpu {
namespace {

class ThreadStream {
 public:
  ThreadStream() { dnnl_stream_create(&stream_, DnnlEngine(), dnnl_stream_default_flags); }
  ~ThreadStream() { dnnl_stream_destroy(stream_); }
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;
  dnnl_stream_t get() const { return stream_; }

 private:
  dnnl_stream_t stream_ = nullptr;
};

}  // namespace

dnnl_engine_t DnnlEngine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    return dnnl_engine_create(&made, dnnl_cpu, 0) == dnnl_success ? made : nullptr;
  }();
  return engine;
}

dnnl_stream_t DnnlStream() {
  thread_local ThreadStream stream;
  return stream.get();
}

}  // namespace meshwright::ops::cpu
