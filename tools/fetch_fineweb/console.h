// What the user sees: results on standard output, notes and the bar on standard error.
#ifndef TOOLS_FETCH_FINEWEB_CONSOLE_H_
#define TOOLS_FETCH_FINEWEB_CONSOLE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tools {

// May be used by several threads at once. The bar is drawn by a thread of its own, and only on a
// terminal.
class Console {
 public:
  explicit Console(std::string program);
  ~Console();  // removes the bar

  // From here on there is a bar, for that many bytes of all files. Call once at most.
  void StartBar(int64_t total_bytes);
  void Fetched(int64_t bytes) { fetched_ += bytes; }
  // That many bytes are there from an earlier run.
  void Found(int64_t bytes) { found_ += bytes; }
  // That many bytes were thrown away and have to come again.
  void Lost(int64_t bytes) { lost_ += bytes; }

  void Result(const std::string& line);
  void Note(const std::string& line);

 private:
  void DrawUntilEnd();
  void Clear();  // with mutex_

  const std::string program_;
  std::atomic<int64_t> fetched_ = 0, found_ = 0, lost_ = 0;
  int64_t total_ = 0;
  std::mutex mutex_;
  bool drawn_ = false;   // guarded by mutex_
  bool ending_ = false;  // guarded by mutex_
  std::condition_variable end_;
  std::thread drawer_;
};

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_CONSOLE_H_
