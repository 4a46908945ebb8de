// Uses CPU in known methods in known shares. At the end it prints the values that a profile should
// show.
//
//   cpu [--mode NAME[,NAME...]|all] [--seconds S | --cpu-seconds S] [--depth N]      default: shares, 10 s
//
// --cpu-seconds is the CPU time of the process: a fixed amount of work, however many programs run beside it.
//
// Prints a JSON line "ready" with the pid at the start. At the end it prints a line "done" with the
// call paths of each mode:
//   frames         parts of function names, outermost first; other frames may be between or below
//   share          nominal share of the mode's CPU time
//   measuredShare  share by the kernel's CPU clock of the thread: compare a profile with it
//   cpuMs          CPU time by that clock: compare a profile with it
//   calls          number of calls
//
// Uses only C# 7 and mscorlib, so that Debian's mcs compiles it and .NET Core 3.1 and later run it.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

static class Program
{
    static int Main(string[] args)
    {
        var all = new List<Mode>
        {
            new Shares(), new Recursion(), new Generic(), new Lambda(), new AsyncChain(), new NativeCallback(), new Syscall(),
        };
        var names = "shares";
        var seconds = 10.0;
        Func<long> clock = Native.Monotonic;
        for (var i = 0; i < args.Length; i += 2)
        {
            var value = i + 1 < args.Length ? args[i + 1] : null;
            var known = value != null;
            switch (args[i])
            {
                case "--mode":
                    names = value;
                    break;
                case "--seconds":
                    known &= double.TryParse(value, NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) && seconds > 0;
                    break;
                case "--cpu-seconds":
                    known &= double.TryParse(value, NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) && seconds > 0;
                    clock = Native.ProcessCpu;
                    break;
                case "--depth":
                    known &= int.TryParse(value, out Recursion.Depth) && Recursion.Depth >= 0 && Recursion.Depth <= 10000;
                    break;
                default:
                    known = false;
                    break;
            }

            if (!known)
            {
                return Usage(all);
            }
        }

        var chosen = new List<Mode>();
        foreach (var name in names.Split(','))
        {
            var found = all.FindAll(mode => name == "all" || mode.Name == name);
            if (found.Count == 0)
            {
                return Usage(all);
            }

            chosen.AddRange(found);
        }

        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + Native.Pid() + "}");
        foreach (var mode in chosen)
        {
            mode.Run(seconds / chosen.Count, clock);
        }

        Console.WriteLine(
            "{\"event\":\"done\",\"pid\":" + Native.Pid() + ",\"modes\":[" + string.Join(",", chosen.ConvertAll(mode => mode.ToJson())) + "]}");
        return 0;
    }

    static int Usage(List<Mode> all)
    {
        Console.Error.WriteLine("usage: cpu [--mode NAME[,NAME...]|all] [--seconds S | --cpu-seconds S] [--depth N]");
        Console.Error.WriteLine("modes: " + string.Join(" ", all.ConvertAll(mode => mode.Name)));
        return 2;
    }
}

/// <summary>The C library.</summary>
static class Native
{
    const int ClockMonotonic = 1;
    const int ClockProcessCpuTime = 2;
    const int ClockThreadCpuTime = 3;

    struct TimeSpec
    {
        public IntPtr Seconds;
        public IntPtr Nanoseconds;
    }

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate int Compare(IntPtr left, IntPtr right);

    /// <summary>CPU time of this thread in nanoseconds, as the kernel accounts it.</summary>
    public static long ThreadCpu() { return Clock(ClockThreadCpuTime); }

    /// <summary>Nanoseconds of CPU that all threads of this process have used.</summary>
    public static long ProcessCpu() { return Clock(ClockProcessCpuTime); }

    public static long Monotonic() { return Clock(ClockMonotonic); }

    [DllImport("libc", EntryPoint = "getpid")]
    public static extern int Pid();

    [DllImport("libc", EntryPoint = "getppid")]
    public static extern int ParentPid();

    [DllImport("libc", EntryPoint = "qsort")]
    public static extern void Sort(int[] items, UIntPtr count, UIntPtr size, Compare compare);

    [DllImport("libc", EntryPoint = "clock_gettime")]
    static extern int ClockGetTime(int clock, out TimeSpec time);

    static long Clock(int clock)
    {
        if (ClockGetTime(clock, out var time) != 0)
        {
            throw new InvalidOperationException("clock_gettime");
        }

        return (long)time.Seconds * 1000000000 + (long)time.Nanoseconds;
    }
}

/// <summary>A call path with a known share of the CPU time of its mode.</summary>
sealed class CallPath
{
    readonly double share;
    readonly string[] frames;
    long cpu;
    long calls;

    public CallPath(double share, params string[] frames)
    {
        this.share = share;
        this.frames = frames;
    }

    public long Cpu { get { return Interlocked.Read(ref cpu); } }

    /// <summary>Counts a call from this time of the thread's CPU clock until now.</summary>
    public void AddSince(long start)
    {
        Interlocked.Add(ref cpu, Native.ThreadCpu() - start);
        Interlocked.Increment(ref calls);
    }

    public string ToJson(long total)
    {
        return string.Format(
            CultureInfo.InvariantCulture,
            "{{\"frames\":[\"{0}\"],\"share\":{1},\"measuredShare\":{2:0.0000},\"cpuMs\":{3:0.000},\"calls\":{4}}}",
            string.Join("\",\"", frames), share, (double)Cpu / Math.Max(1, total), Cpu / 1e6, calls);
    }
}

/// <summary>A way to use CPU, in rounds of about a millisecond, until the time is over.</summary>
abstract class Mode
{
    /// <summary>Steps of one call, about 0.1 ms.</summary>
    protected const int Unit = 100000;

    protected readonly CallPath[] Paths;
    long rounds;
    double elapsedMs;

    protected Mode(string name, params CallPath[] paths)
    {
        Name = name;
        Paths = paths;
    }

    public string Name { get; private set; }

    /// <summary>Rounds until this clock has advanced by this much.</summary>
    public void Run(double seconds, Func<long> clock)
    {
        long start = Native.Monotonic(), startWork = clock();
        do
        {
            Round();
            rounds++;
        }
        while (clock() - startWork < seconds * 1e9);
        elapsedMs = (Native.Monotonic() - start) / 1e6;
    }

    public string ToJson()
    {
        long total = 0;
        foreach (var path in Paths)
        {
            total += path.Cpu;
        }

        return string.Format(
            CultureInfo.InvariantCulture,
            "{{\"mode\":\"{0}\",\"rounds\":{1},\"elapsedMs\":{2:0.0},\"paths\":[{3}]}}",
            Name, rounds, elapsedMs, string.Join(",", Array.ConvertAll(Paths, path => path.ToJson(total))));
    }

    protected abstract void Round();

    /// <summary>
    /// Each step depends on the previous one, so that a step takes the same time at every address.
    /// Optimized code has this loop inlined, so that the samples are in the caller.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    protected static ulong Burn(ulong state, int steps)
    {
        for (var i = 0; i < steps; i++)
        {
            state = state * 6364136223846793005 + 1442695040888963407;
        }

        return state;
    }
}

/// <summary>
/// Three methods of one caller, with 5 : 3 : 2 equal calls per round. The order is random, so that
/// no clock tick falls into step with it.
/// </summary>
sealed class Shares : Mode
{
    readonly int[] order = { 0, 0, 0, 0, 0, 1, 1, 1, 2, 2 };
    readonly Random random = new Random(1);
    ulong state;

    public Shares() : base(
        "shares",
        new CallPath(0.5, "ShareCaller", "Work50"),
        new CallPath(0.3, "ShareCaller", "Work30"),
        new CallPath(0.2, "ShareCaller", "Work20"))
    {
    }

    protected override void Round()
    {
        for (var i = order.Length - 1; i > 0; i--)
        {
            var j = random.Next(i + 1);
            var swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }

        state = ShareCaller(state) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    ulong ShareCaller(ulong value)
    {
        foreach (var which in order)
        {
            var start = Native.ThreadCpu();
            value = which == 0 ? Work50(value) : which == 1 ? Work30(value) : Work20(value);
            Paths[which].AddSince(start);
        }

        return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Work50(ulong value) { return Burn(value, Unit); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Work30(ulong value) { return Burn(value, Unit); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Work20(ulong value) { return Burn(value, Unit); }
}

/// <summary>A mode with one path, all on the calling thread.</summary>
abstract class SinglePath : Mode
{
    ulong state = 1;

    protected SinglePath(string name, params string[] frames) : base(name, new CallPath(1, frames))
    {
    }

    protected sealed override void Round()
    {
        var start = Native.ThreadCpu();
        state = Round(state) + 1;
        Paths[0].AddSince(start);
    }

    protected abstract ulong Round(ulong value);
}

/// <summary>A method that calls itself and uses CPU in the innermost call.</summary>
sealed class Recursion : SinglePath
{
    public static int Depth = 32;

    public Recursion() : base("recursion", "Descend", "Descend", "Descend")
    {
    }

    protected override ulong Round(ulong value) { return Descend(value, Depth); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Descend(ulong value, int left)
    {
        return left == 0 ? Burn(value, Unit) : Descend(value, left - 1) + 1;
    }
}

/// <summary>
/// A generic method for a value type, with separate code, and for a reference type, with code
/// shared as __Canon.
/// </summary>
sealed class Generic : Mode
{
    ulong state = 1;

    public Generic() : base(
        "generic", new CallPath(0.5, "ValueCaller", "GenericBurn"), new CallPath(0.5, "ReferenceCaller", "GenericBurn"))
    {
    }

    protected override void Round()
    {
        var start = Native.ThreadCpu();
        state = ValueCaller(state) + 1;
        Paths[0].AddSince(start);
        start = Native.ThreadCpu();
        state = ReferenceCaller(state) + 1;
        Paths[1].AddSince(start);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong ValueCaller(ulong value) { return GenericBurn(7, value) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong ReferenceCaller(ulong value) { return GenericBurn("seven", value) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong GenericBurn<T>(T item, ulong value) { return Burn(value, Unit) + (item is ulong ? 1UL : 0UL); }
}

/// <summary>
/// A lambda that captures. Its body is a method of a generated class. The name of that method
/// contains the name of the calling method.
/// </summary>
sealed class Lambda : SinglePath
{
    public Lambda() : base("lambda", "LambdaCaller", "LambdaCaller")
    {
    }

    protected override ulong Round(ulong value) { return LambdaCaller(value); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong LambdaCaller(ulong value)
    {
        var steps = Unit;
        Func<ulong> burn = () => Burn(value, steps);
        return burn() + 1;
    }
}

/// <summary>
/// Async methods that use CPU after an await, on pool threads: 60 % in the inner method, 40 % in
/// the one that awaits it.
/// </summary>
sealed class AsyncChain : Mode
{
    ulong state = 1;

    public AsyncChain() : base(
        "async", new CallPath(0.6, "AsyncInner", "InnerBurn"), new CallPath(0.4, "AsyncOuter", "OuterBurn"))
    {
    }

    protected override void Round() { state = AsyncOuter(state).Result; }

    async Task<ulong> AsyncOuter(ulong value)
    {
        value = await AsyncInner(value).ConfigureAwait(false);
        var start = Native.ThreadCpu();
        value = OuterBurn(value) + 1;
        Paths[1].AddSince(start);
        return value;
    }

    async Task<ulong> AsyncInner(ulong value)
    {
        await Task.Yield();
        var start = Native.ThreadCpu();
        value = InnerBurn(value) + 1;
        Paths[0].AddSince(start);
        return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong InnerBurn(ulong value) { return Burn(value, 6 * Unit); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong OuterBurn(ulong value) { return Burn(value, 4 * Unit); }
}

/// <summary>The C library's qsort, called by managed code, calls managed code.</summary>
sealed class NativeCallback : SinglePath
{
    readonly Native.Compare compare = CompareBurn;

    public NativeCallback() : base("native", "NativeCaller", "CompareBurn")
    {
    }

    protected override ulong Round(ulong value) { return NativeCaller(value); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    ulong NativeCaller(ulong value)
    {
        var items = new[] { 3, 1, 4, 1, 5, 9, 2, 6 };
        Native.Sort(items, (UIntPtr)(uint)items.Length, (UIntPtr)sizeof(int), compare);
        return value + (ulong)items[0];
    }

    static int CompareBurn(IntPtr left, IntPtr right)
    {
        // Uses the result, so that the JIT keeps the loop.
        var burnt = Burn((ulong)left, Unit / 10) == 42 ? 1 : 0;
        return Marshal.ReadInt32(left) - Marshal.ReadInt32(right) + burnt;
    }
}

/// <summary>A P/Invoke that calls the kernel: three kinds of frames in a stack.</summary>
sealed class Syscall : SinglePath
{
    public Syscall() : base("syscall", "SyscallCaller")
    {
    }

    protected override ulong Round(ulong value) { return SyscallCaller(value); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong SyscallCaller(ulong value)
    {
        for (var i = 0; i < 2000; i++)
        {
            value += (ulong)Native.ParentPid();
        }

        return value;
    }
}
