// SPDX-License-Identifier: BSD-3-Clause
// What the sanitizers need not do for a fuzzer: half of its time went there.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() {
    return "malloc_context_size=2:quarantine_size_mb=8:max_malloc_fill_size=0";
}
