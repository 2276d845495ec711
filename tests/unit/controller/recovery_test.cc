// What becomes of a job whose run has failed, as pure functions.
#include "controller/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {}  // namespace
}  // namespace meshwright::controller
