// The edge where exceptions end: work that an executor runs for others reports them as a Status, so
// that one job's failure is not the end of the process.
//
// Thread rule: as `body`.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright {

// What `body` returns (a Status or a Result). Errors beside its own: kResourceExhausted when it
// threw std::bad_alloc, kInternal naming `what` for any other exception.
template <typename Body>
auto Guarded(std::string_view what, const Body& body) -> decltype(body()) {
  const std::string context(what);
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(
        ResourceExhausted(context + " ran out of memory; use a smaller model or a larger host"));
  } catch (const std::exception& error) {
    return Fail(Internal(context + " threw an exception: " + error.what() +
                         "; this is a defect, please report it"));
  } catch (...) {
    return Fail(Internal(context + " threw something unknown; this is a defect, please report it"));
  }
}

}  // namespace meshwright
