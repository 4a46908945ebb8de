// A bit of all that a runtime does: allocation, sorting inside the framework, exceptions, lock contention, timers, pool work.
//
//   mixed [--seconds S | --cpu-seconds S]      default: 10 s
//
// --cpu-seconds is the CPU time of the process: a fixed amount of work, however many programs run beside it.
//
// One JSON line "ready" with the pid when work begins, one "done" at the end. Its "counts" are what this program did; its
// "runtime" is what the runtime counted about itself since the process began (absent where that version does not count it).
//
// C# 7 and mscorlib only, so that Debian's mcs compiles it and the IL runs on every .NET from Core 3.1 on.
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

        var begin = DateTime.UtcNow;
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
            while ((byCpuTime ? Clock() / 1e6 : (DateTime.UtcNow - begin).TotalSeconds) < seconds);
            ticks = ticking.Stop();
            Console.WriteLine(string.Format(
                CultureInfo.InvariantCulture,
                "{{\"event\":\"done\",\"pid\":{0},\"rounds\":{1},\"elapsedMs\":{2:0.0}," +
                "\"counts\":{{\"allocatedObjects\":{3},\"allocatedBytes\":{4},\"sortedItems\":{5},\"thrown\":{6},\"caught\":{7}," +
                "\"contended\":{8},\"timerTicks\":{9},\"poolItems\":{10}}},\"runtime\":{{{11}}}}}",
                GetPid(), rounds, (DateTime.UtcNow - begin).TotalMilliseconds,
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
        // CollectionCount of a generation also counts the collections of the older ones.
        int gen0 = GC.CollectionCount(0), gen1 = GC.CollectionCount(1), gen2 = GC.CollectionCount(2);
        var counts = new List<string>
        {
            "\"gcByGeneration\":[" + (gen0 - gen1) + "," + (gen1 - gen2) + "," + gen2 + "]",
            "\"exceptions\":" + firstChance,
        };

        // Newer than the reference assemblies this is compiled against.
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

/// <summary>Short-lived arrays in the small heap, some that live for a while, now and then one in the large object heap.</summary>
sealed class Allocation
{
    readonly byte[][] kept = new byte[256][];
    int round;

    public long Objects { get; private set; }

    /// <summary>Of their contents, without headers.</summary>
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

/// <summary>Array.Sort with a comparison of ours: framework code, precompiled or not, that calls back.</summary>
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

/// <summary>Exceptions through eight frames, caught at the top; every fourth caught and thrown again half-way.</summary>
sealed class Exceptions
{
    /// <summary>Throws and rethrows: each is a first-chance exception.</summary>
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

/// <summary>A rival thread that finds the lock taken: the holder gives it time to spin and then to wait.</summary>
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
            // Long enough for the rival to wake up, find the gate taken, give up spinning and wait.
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

/// <summary>A timer every 5 ms, whose callback does a little.</summary>
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

/// <summary>Eight items for the thread pool a round, waited for.</summary>
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
