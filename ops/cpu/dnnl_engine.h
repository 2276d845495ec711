// What all primitives of oneDNN in this process share.
//
// Thread rule: any thread; a stream belongs to the thread that asked for it.
#pragma once

#include <dnnl.h>

namespace meshwright::ops::cpu {

// One engine for the process: primitives and memory of all threads refer to it. Null when the
// library has none.
dnnl_engine_t DnnlEngine();
// A stream of the calling thread, kept for its life.
dnnl_stream_t DnnlStream();

}  // namespace meshwright::ops::cpu
