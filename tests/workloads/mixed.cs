// Does a little of everything: allocation, sorting in the framework, exceptions, lock contention,
// timers, thread pool work.
//
//   mixed [--seconds S | --cpu-seconds S]      default: 10 s
//
// --cpu-seconds is the CPU time of the process: a fixed amount of work, however many programs run beside it.
//
// Prints a JSON line "ready" with the pid at the start, and "done" at the end. "counts" has the
// program's own counts. "runtime" has the runtime's counts since the start of the process, without
// those that its version does not have.
//
// Uses only C# 7 and mscorlib, so that Debian's mcs compiles it and .NET Core 3.1 and later run it.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Program
{
    static int Main(string[] args)
    {
        var seconds = 10.0;
        if (args.Length != 0 &&
            (args.Length != 2 || (args[0] != "--seconds" && args[0] != "--cpu-seconds") ||
             !double.TryParse(args[1], NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) || !(seconds > 0)))
        {
            Console.Error.WriteLine("usage: mixed [--seconds S | --cpu-seconds S]");
            return 2;
        }

        var byCpuTime = args.Length != 0 && args[0] == "--cpu-seconds";
        long firstChance = 0;
        AppDomain.CurrentDomain.FirstChanceException += (sender, thrown) => Interlocked.Increment(ref firstChance);
        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + GetPid() + "}");

        var start = DateTime.UtcNow;
        var allocation = new Allocation();
        var sorting = new Sorting();
        var exceptions = new Exceptions();
        var pool = new PoolWork();
        long rounds = 0;
        long ticks;
        using (var contention = new Contention())
        using (var ticking = new Ticking())
        {
            do
            {
                allocation.Round();
                sorting.Round();
                exceptions.Round();
                contention.Round();
                pool.Round();
                rounds++;
            }
            while ((byCpuTime ? Clock() / 1e6 : (DateTime.UtcNow - start).TotalSeconds) < seconds);
            ticks = ticking.Stop();
            Console.WriteLine(string.Format(
                CultureInfo.InvariantCulture,
                "{{\"event\":\"done\",\"pid\":{0},\"rounds\":{1},\"elapsedMs\":{2:0.0}," +
                "\"counts\":{{\"allocatedObjects\":{3},\"allocatedBytes\":{4},\"sortedItems\":{5},\"thrown\":{6},\"caught\":{7}," +
                "\"contended\":{8},\"timerTicks\":{9},\"poolItems\":{10}}},\"runtime\":{{{11}}}}}",
                GetPid(), rounds, (DateTime.UtcNow - start).TotalMilliseconds,
                allocation.Objects, allocation.Bytes, sorting.Items, exceptions.Thrown, exceptions.Caught,
                contention.Contended, ticks, pool.Items, RuntimeCounts(Interlocked.Read(ref firstChance))));
        }

        return 0;
    }

    [DllImport("libc", EntryPoint = "getpid")]
    static extern int GetPid();

    // Microseconds of CPU time.
    [DllImport("libc", EntryPoint = "clock")]
    static extern long Clock();

    static string RuntimeCounts(long firstChance)
    {
        // CollectionCount of a generation includes the collections of older generations.
        int gen0 = GC.CollectionCount(0), gen1 = GC.CollectionCount(1), gen2 = GC.CollectionCount(2);
        var counts = new List<string>
        {
            "\"gcByGeneration\":[" + (gen0 - gen1) + "," + (gen1 - gen2) + "," + gen2 + "]",
            "\"exceptions\":" + firstChance,
        };

        // The reference assemblies are older than these members.
        Add(counts, "lockContentions", typeof(Monitor).GetProperty("LockContentionCount"));
        Add(counts, "poolItems", typeof(ThreadPool).GetProperty("CompletedWorkItemCount"));
        var allocated = typeof(GC).GetMethod("GetTotalAllocatedBytes", new[] { typeof(bool) });
        if (allocated != null)
        {
            counts.Add("\"allocatedBytes\":" + allocated.Invoke(null, new object[] { true }));
        }

        return string.Join(",", counts);
    }

    static void Add(List<string> counts, string name, PropertyInfo property)
    {
        if (property != null)
        {
            counts.Add("\"" + name + "\":" + property.GetValue(null, null));
        }
    }
}

/// <summary>Short-lived arrays, longer-lived ones, and a few large objects.</summary>
sealed class Allocation
{
    readonly byte[][] kept = new byte[256][];
    int round;

    public long Objects { get; private set; }

    /// <summary>Bytes of their contents, without headers.</summary>
    public long Bytes { get; private set; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Round()
    {
        for (var i = 0; i < 200; i++)
        {
            var size = 64 + i % 16 * 256;
            kept[(round * 7 + i) % kept.Length] = Allocate(size);
        }

        if (round++ % 16 == 0)
        {
            kept[0] = Allocate(200 * 1024);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    byte[] Allocate(int size)
    {
        Objects++;
        Bytes += size;
        return new byte[size];
    }
}

/// <summary>Array.Sort with a comparison method: framework code calls this program.</summary>
sealed class Sorting
{
    readonly Random random = new Random(1);
    readonly string[] items = new string[2000];

    public long Items { get; private set; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Round()
    {
        for (var i = 0; i < items.Length; i++)
        {
            items[i] = random.Next().ToString(CultureInfo.InvariantCulture);
        }

        Array.Sort(items, CompareText);
        Items += items.Length;
    }

    static int CompareText(string left, string right) { return string.CompareOrdinal(left, right); }
}

/// <summary>Exceptions through eight frames. Every fourth is rethrown half-way.</summary>
sealed class Exceptions
{
    /// <summary>Throws and rethrows. Each is a first-chance exception.</summary>
    public long Thrown { get; private set; }

    public long Caught { get; private set; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Round()
    {
        for (var i = 0; i < 4; i++)
        {
            try
            {
                ThrowBelow(8, i == 0);
            }
            catch (InvalidOperationException)
            {
                Caught++;
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void ThrowBelow(int depth, bool again)
    {
        if (depth == 0)
        {
            Thrown++;
            throw new InvalidOperationException("on purpose");
        }

        if (depth != 4 || !again)
        {
            ThrowBelow(depth - 1, again);
            return;
        }

        try
        {
            ThrowBelow(depth - 1, true);
        }
        catch (InvalidOperationException)
        {
            Caught++;
            Thrown++;
            throw;
        }
    }
}

/// <summary>A thread that waits for a lock, long enough to spin and then to block.</summary>
sealed class Contention : IDisposable
{
    readonly object gate = new object();
    readonly Thread rival;
    readonly AutoResetEvent start = new AutoResetEvent(false);
    readonly AutoResetEvent finished = new AutoResetEvent(false);
    volatile bool stopping;

    public Contention()
    {
        rival = new Thread(RivalLoop) { Name = "lock rival", IsBackground = true };
        rival.Start();
    }

    public long Contended { get; private set; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Round()
    {
        lock (gate)
        {
            start.Set();
            // Time for the rival to wake up, to spin, and to block.
            Thread.Sleep(2);
            Contended++;
        }

        finished.WaitOne();
    }

    public void Dispose()
    {
        stopping = true;
        start.Set();
        rival.Join();
    }

    void RivalLoop()
    {
        for (;;)
        {
            start.WaitOne();
            if (stopping)
            {
                return;
            }

            EnterTaken();
            finished.Set();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void EnterTaken()
    {
        lock (gate)
        {
        }
    }
}

/// <summary>A timer with a short callback every 5 ms.</summary>
sealed class Ticking : IDisposable
{
    readonly Timer timer;
    long ticks;

    public Ticking() { timer = new Timer(OnTick, null, 5, 5); }

    public long Stop()
    {
        timer.Change(Timeout.Infinite, Timeout.Infinite);
        return Interlocked.Read(ref ticks);
    }

    public void Dispose() { timer.Dispose(); }

    void OnTick(object state) { Interlocked.Increment(ref ticks); }
}

/// <summary>Eight thread pool items per round. The round waits for them.</summary>
sealed class PoolWork
{
    long items;

    public long Items { get { return Interlocked.Read(ref items); } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Round()
    {
        using (var left = new CountdownEvent(8))
        {
            for (var i = 0; i < 8; i++)
            {
                ThreadPool.QueueUserWorkItem(PoolItem, left);
            }

            left.Wait();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void PoolItem(object left)
    {
        var sum = 0;
        for (var i = 0; i < 20000; i++)
        {
            sum = unchecked(sum * 31 + i);
        }

        GC.KeepAlive(sum);
        Interlocked.Increment(ref items);
        ((CountdownEvent)left).Signal();
    }
}
