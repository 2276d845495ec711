// FunctionRef<R(Args...)>: a borrowed callable, two words wide, without allocation.
//
// For parameters that are only called before the callee returns (ThreadTeam::ParallelFor). It does
// not own what it points to: never store one beyond the call it was passed to.
//
// Thread rule: as safe as the callable itself.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace meshwright {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F,
            typename = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
                                        std::is_invocable_r_v<R, F&, Args...>>>
  FunctionRef(F&& callable)  // NOLINT(google-explicit-constructor): a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace meshwright
