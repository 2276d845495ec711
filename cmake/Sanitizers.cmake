# MESHWRIGHT_SANITIZE=address: AddressSanitizer and UndefinedBehaviorSanitizer; =thread:
# ThreadSanitizer. Sets MW_TEST_ENVIRONMENT, the run-time options that every test gets, and tells
# the code by MW_ADDRESS_SANITIZER or MW_THREAD_SANITIZER: each compiler has a macro of its own.
# What properties draw is the same in each run; a test binary run by hand draws anew, and prints its seed.
set(MW_TEST_ENVIRONMENT RC_PARAMS=seed=20261126)
if(MESHWRIGHT_SANITIZE STREQUAL "address")
  # Without the check of the dynamic type: it asks the kernel through a pipe whether memory is there,
  # and calls an object broken when the process has no descriptor left.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_compile_definitions(MW_ADDRESS_SANITIZER)
  add_link_options(-fsanitize=address,undefined)
  # Without the last option the leak check of GCC before 14 crashes now and then: it takes
  # thread-local memory at certain addresses for that of an old glibc, and reads a size from it
  # (github.com/Mudlet/Mudlet/pull/9930).
  list(APPEND MW_TEST_ENVIRONMENT
       ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:intercept_tls_get_addr=0
       UBSAN_OPTIONS=print_stacktrace=1)
elseif(MESHWRIGHT_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_compile_definitions(MW_THREAD_SANITIZER)
  add_link_options(-fsanitize=thread)
  # gRPC, protobuf and the other packaged libraries are not instrumented: without these options each
  # of their hand-overs is reported.
  list(APPEND MW_TEST_ENVIRONMENT
       TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp:ignore_noninstrumented_modules=1:second_deadlock_stack=1)
elseif(MESHWRIGHT_SANITIZE)
  message(FATAL_ERROR
          "MESHWRIGHT_SANITIZE='${MESHWRIGHT_SANITIZE}': use address, thread or leave it empty")
endif()

# MESHWRIGHT_FUZZ=ON: code that tells libFuzzer which ways it takes; with MESHWRIGHT_SANITIZE=address it also dies of
# what is wrong and would not show.
if(MESHWRIGHT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MESHWRIGHT_FUZZ=ON needs clang, which has libFuzzer: cmake --preset fuzz")
  endif()
  add_compile_options("$<$<NOT:$<BOOL:$<TARGET_PROPERTY:MW_NOT_FOLLOWED>>>:-fsanitize=fuzzer-no-link>")
endif()
